// The interface between the checkpoint side and the owner of the training state. TrainState implements it
// with Torch, tests with plain memory.
//
// Errors: see the methods. Threads: the training thread, unless a method says otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/base/export.h"
#include "holdfast/snapshot/cursor.h"
#include "holdfast/snapshot/overrides.h"
#include "holdfast/snapshot/snapshot.h"

namespace holdfast { inline namespace v0_2 {

// The result of an update that a device still computes. read() waits for it and returns the same numbers each
// time. A program that gets its results one step late (docs/late_results.md) passes it to after_step().
//
// Errors: read() may throw; then the call that needed the result passes the exception on.
// Threads: the training thread.
class HOLDFAST_EXPORT LateReport {
 public:
  struct Numbers {
    double loss = 0;       // of this update; NaN means NaN
    bool skipped = false;  // as StepReport::skipped
  };
  virtual ~LateReport() = default;
  virtual Numbers read() = 0;
};

// What one optimizer update reports. A skipped update is a step too: its data is used up.
struct StepReport {
  // The batch's cursor. Unset: everything delivered so far was applied, or, of an EpochOrder, one more batch.
  std::optional<Cursor> applied = {};
  // Loss of this update. Unset: unknown, for a loop that does not read its loss at every step. NaN means NaN.
  std::optional<double> loss = {};
  bool evaluation_due = false;  // an evaluation at this step boundary has not run yet
  bool skipped = false;         // no update, because the gradients were not finite
  // Not null: `loss` and `skipped` come from here, when they are needed: before a save, a stop, an evaluation
  // or the end of the run, at the latest in the next before_update() or after_step().
  std::shared_ptr<LateReport> late = {};
};

// Which tensors to copy. `late` ones cannot change before the next optimizer update: parameters, optimizer
// slots. `early` ones can: buffers, RNG, every user's Stateful. Tensors in device memory always count as
// late, because the device copies aside what changes early, in order with its work.
enum class Part { early, late, all };

// The late tensors of one step boundary, for a copy into an image while training computes forward and
// backward. Keeps the memory that the tensors had then, even if the module is moved or cast meanwhile.
//
// A device copies asynchronously (device_copy.h): parts of the image may be on their way when run() returns.
// The image is complete after every run() and one arrive().
//
// Threads: run() on any number of threads at once; arrive() on any one thread; the other methods on the
// training thread while no run() is active.
class HOLDFAST_EXPORT LateCopy {
 public:
  // Waits for copies on their way; afterwards nothing writes to the image.
  virtual ~LateCopy() = default;
  // Copies what no other run() has taken yet.
  virtual void run() noexcept = 0;
  // Runs on a thread beside the training, and digests what it copies. Requires that `digests` is of the
  // image.
  virtual void run_digesting(PieceDigests& /*digests*/) noexcept { run(); }
  // Names of tensors whose memory differs from the image by now. Reads all of them. Requires a complete
  // image.
  virtual std::vector<std::string> changed() const = 0;
  // A cheap form for every save: compares hashes of a few hundred bytes of each tensor in host memory, taken
  // when the copy was prepared. Detects an update of a whole tensor; may miss one of a few elements. Cannot
  // check devices.
  virtual std::vector<std::string> changed_samples() const { return {}; }

  virtual bool on_its_way() const noexcept { return false; }  // a device still copies
  // True if nothing that training does from now on can reach the image, even without run() and hold_update().
  virtual bool independent() const noexcept { return false; }
  // Orders training's next device work after the copies, on the device. Does not block this thread.
  virtual void hold_update() noexcept {}
  // Blocks until device copies have ended. Throws Error if one failed.
  virtual void arrive() {}
  // Waits like arrive(), and digests what arrives. Requires that `digests` is of the image.
  virtual void arrive_digesting(PieceDigests& /*digests*/) { arrive(); }
};

// Prepares an image's memory for fast device copies (page-locking). Called once per image; the result lives
// as long as the memory. Never throws; nullptr if nothing could be done.
using PrepareImage = std::function<std::shared_ptr<void>(std::span<std::byte>)>;

// The training state is one that no save can hold, or that no start of the same program could load. The
// program must change; no later save of this state would do better.
class HOLDFAST_EXPORT UnsavableError : public UsageError {
 public:
  using UsageError::UsageError;
};

class HOLDFAST_EXPORT SnapshotSource {
 public:
  virtual ~SnapshotSource() = default;

  // While the result lives, no code of the program runs between the calls below but save() of its components,
  // so the source may list its tensors once for all of them: a model has hundreds. Nested holds share one
  // list. An update, a load and a new part end it. nullptr: the source keeps no list.
  virtual std::shared_ptr<const void> hold_list() { return nullptr; }
  // While the result lives, a run saves this state, and each start of the run makes the state as it is now.
  // So the source accepts no new part, and attributes() throws UnsavableError where load() of such a start
  // would refuse the state. nullptr: the source does not compare.
  virtual std::shared_ptr<const void> fix_form() { return nullptr; }
  // The current tensors of the state, in a fixed order. May differ from the last call once optimizer slots
  // exist; then the checkpoint side makes a new plan.
  virtual std::vector<TensorSpec> describe() = 0;
  // True if the tensors may be others at each boundary, in the same way on all ranks. Ranks that write one
  // file together then lay it out again before they agree on a save.
  virtual bool may_change_form() const { return false; }
  // Copies each tensor of `layout` into its slot, or the part that layout.wanted() names. This and the
  // following copies require layout.tensors() == describe().
  virtual void copy_tensors(const ImageLayout& layout, std::span<std::byte> image, Part part) = 0;
  // Prepares a copy of Part::late. Copies at once what another thread cannot copy (device memory, unusual
  // strides). Requires that the image outlives the copy.
  virtual std::unique_ptr<LateCopy> prepare_late(const ImageLayout& layout, std::span<std::byte> image) = 0;

  // True if some of the state is in device memory.
  virtual bool on_device() const { return false; }
  // Like prepare_late(), but the result is independent(): for a loop that does not announce its updates.
  // Requires on_device(). May block if a device has no spare memory.
  virtual std::unique_ptr<LateCopy> prepare_independent(const ImageLayout& layout,
                                                        std::span<std::byte> image) {
    return prepare_late(layout, image);
  }
  // An empty function means no preparation. The function may be called after the source is gone.
  virtual PrepareImage image_preparation() const { return {}; }

  // These tensors do change before the update: from now on they belong to Part::early.
  virtual void copy_early(std::span<const std::string> names) = 0;
  // Everything that is not a tensor, including the step ("step").
  virtual Attributes attributes() = 0;

  // One optimizer update was applied or skipped: the state is at the next step boundary.
  virtual void advance(const StepReport& report) = 0;
  // The update of the last advance() was skipped, as its StepReport::late tells now. Counts it.
  virtual void last_was_skipped() {}
  virtual std::int64_t step() const = 0;
  // Where the data stands after the last advance(): the program may work on the state after a boundary where
  // its data ends. Asked at every step.
  virtual DataEnd data_end() const { return DataEnd::none; }
  // Names of attributes and tensors that differ from that image of the present step. Random streams and
  // train/eval flags do not count: an evaluation leaves them otherwise. Reads the whole state.
  virtual std::vector<std::string> changed_since(const Snapshot& /*image*/) { return {}; }

  // Names of tensors that the source has taken as unchanged, and that have changed without a trace. Reads all
  // of these; the next save has what was found.
  virtual std::vector<std::string> changed_unseen() { return {}; }

  // Read-only: would load() accept this checkpoint? Compares tensors and options; throws RefusedError (78)
  // with every difference. Called before the claim, without bytes of tensors.
  virtual void check(std::span<const TensorSpec> tensors, const Attributes& attributes,
                     const Overrides& overrides) = 0;
  // Makes the state equal to the snapshot, bit for bit; all or nothing. Restores RNG streams last.
  virtual void load(const Snapshot& snapshot, const Overrides& overrides) = 0;
  // Loads model tensors only (`--init-from`); everything else stays fresh.
  virtual void load_weights(const Snapshot& snapshot) = 0;
  // True if load_weights() uses this tensor of a checkpoint; other tensors are not read.
  virtual bool takes_weight(const TensorSpec& /*tensor*/) const { return true; }

  // For several ranks that train one state: fetches from the other ranks what describe() and the copies need,
  // so that these do not wait for other ranks until the next update. Collective: every rank calls it at the
  // same boundaries, where all save. Throws on all ranks if it is impossible.
  virtual void bring_together() {}
  // True if describe() or a copy would wait for other ranks now, because bring_together() was not called
  // here.
  virtual bool needs_others() const { return false; }
  // True if each rank has its own content of this tensor (random numbers). Such a tensor is early, with one
  // type and shape on all ranks.
  virtual bool own_of_rank(const TensorSpec& /*tensor*/) const { return false; }
  // True if this tensor of the last describe() is equal to the bit on all ranks at every boundary where all
  // save (after bring_together()). Then any rank may write any part of it, and nothing compares: a wrong
  // answer makes a checkpoint that is no rank's state. A tensor that is neither this nor a rank's own comes
  // from rank 0.
  virtual bool replicated(const TensorSpec& /*tensor*/) const { return false; }
  // True if this tensor of the last describe() is a trained parameter or an optimizer slot. In these an
  // infinity makes a checkpoint "not finite" (retention.h); in other tensors only a NaN does.
  virtual bool trained(const TensorSpec& /*tensor*/) const { return true; }
  // Copies only the rank's own tensors. Requires that layout.tensors() are exactly these.
  // Override it together with own_of_rank(). A source without tensors of a rank's own keeps this one, which
  // throws Error.
  virtual void copy_own(const ImageLayout& /*layout*/, std::span<std::byte> /*image*/) {
    throw Error("this training state has tensors that are each rank's own, and cannot copy them alone");
  }
  // After a load() of rank 0's state, for a rank whose own tensors the checkpoint lacks: derives them from
  // the loaded state and the rank alone. Requires rank > 0.
  virtual void derive_own(int /*rank*/) {}

  // What the program has probably forgotten, one text each, for its log. Called at each save after an update.
  // Only the first call may return texts. Changes nothing that decides the next step.
  virtual std::vector<std::string> doubts() { return {}; }
  // The program was told to stop: no update follows.
  virtual void told_to_stop() {}
};

}}  // namespace holdfast::v0_2
