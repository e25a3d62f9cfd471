// The interface between the checkpoint side and the owner of the training state. TrainState implements it
// with Torch, tests with plain memory.
//
// Errors: see the methods. Threads: the training thread, unless a method says otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
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

// Which tensors to copy. Late ones cannot change before the next optimizer update: parameters, optimizer
// slots. Early ones can: buffers, RNG, every user's Stateful. Tensors in device memory always count as late,
// because the device copies aside what changes early, in order with its work.
enum class Part {
  all,
  early,
  late,         // beside the training: the caller runs the copy that it gets
  independent,  // as `late`, but that copy is independent(): for a loop that does not announce its updates
  own,          // those that are each rank's own (Sharing), and no others
};

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

// Where the training stands.
struct Position {
  std::int64_t step = 0;
  // Where the data stands after the last advance(): the program may work on the state after a boundary where
  // its data ends.
  DataEnd data_end = DataEnd::none;
};

// Whose content of a tensor a checkpoint of several ranks has.
enum class Sharing {
  first,  // rank 0's
  // Equal to the bit on all ranks at every boundary where all save (after bring_together()). Any rank may
  // write any part of it, and nothing compares: a wrong answer makes a checkpoint that is no rank's state.
  same,
  own,  // each rank's (random numbers): early, with one type and shape on all ranks
};

struct TensorRole {
  Sharing sharing = Sharing::first;
  // A trained parameter or an optimizer slot. In these an infinity makes a checkpoint "not finite"
  // (retention.h); in other tensors only a NaN does.
  bool trained = true;
  bool weight = true;  // load() takes it with LoadOptions::weights_only, which reads no other tensors
};

// What a Checkpointer plans with.
struct SourceTraits {
  bool on_device = false;  // some of the state is in device memory
  // The tensors may be others at each boundary, in the same way on all ranks. Ranks that write one file
  // together then lay it out again before they agree on a save.
  bool may_change_form = false;
  // describe() or a copy would wait for other ranks now, because bring_together() was not called here.
  bool needs_others = false;
  std::optional<Shard> shard = {};  // what this rank reads of the data, if the source knows
  PrepareImage prepare_image = {};  // empty: no preparation. May be called after the source is gone
};

// What turns out about an update after its advance().
struct StepNews {
  bool skipped = false;  // it was skipped, as its StepReport::late tells now; the source counts it
  bool stop = false;     // the program was told to stop: no update follows
  // These tensors do change before the next update: from now on they are early.
  std::span<const std::string> early = {};
};

struct LoadOptions {
  Overrides overrides = {};
  bool weights_only = false;  // model tensors only (`--init-from`); everything else stays fresh
  // Not 0: the snapshot has rank 0's own tensors, and this rank then derives its own from the loaded state
  // and this number alone.
  int new_rank = 0;
};

// What SnapshotSource::hold() keeps as it is.
enum class Hold {
  // The list of tensors: no code of the program runs between the calls but save() of its components, so the
  // source may list its tensors once for all of them: a model has hundreds. Nested holds share one list. An
  // update, a load and a new part end it.
  list,
  // The form: a run saves this state, and each start of the run makes the state as it is now. So the source
  // accepts no new part, and attributes() throws UnsavableError where load() of such a start would refuse the
  // state.
  form,
};

class HOLDFAST_EXPORT SnapshotSource {
 public:
  virtual ~SnapshotSource() = default;

  // The current tensors of the state, in a fixed order. May differ from the last call once optimizer slots
  // exist; then the checkpoint side makes a new plan.
  virtual std::vector<TensorSpec> describe() = 0;
  // Of a tensor of the last describe(). `weight` is asked of tensors of a checkpoint.
  virtual TensorRole role(const TensorSpec& /*tensor*/) const { return {}; }
  // Everything that is not a tensor, including the step ("step").
  virtual Attributes attributes() = 0;
  // Digests of small tensors, by name, of which a checkpoint has rank 0's alone, such as a random engine of
  // the program: at a fresh start of several ranks each rank compares its own.
  virtual std::map<std::string, std::string> value_digests() { return {}; }
  // As of the last describe().
  virtual SourceTraits traits() const { return {}; }
  // Holds it while the result lives. nullptr: the source keeps no list, or compares no form.
  virtual std::shared_ptr<const void> hold(Hold /*what*/) { return nullptr; }
  // Copies each tensor of that part of `layout` into its slot, or what layout.wanted() names of it. Requires
  // layout.tensors() == describe(), of which Part::own is those tensors alone. For Part::late and
  // Part::independent returns a copy to run, and copies at once what another thread cannot copy (device
  // memory, unusual strides); else nullptr. Requires that the image outlives that copy. Part::independent
  // requires on_device, and may block if a device has no spare memory.
  virtual std::unique_ptr<LateCopy> copy(const ImageLayout& layout, std::span<std::byte> image,
                                         Part part) = 0;

  // One optimizer update was applied or skipped: the state is at the next step boundary, which it returns.
  virtual Position advance(const StepReport& report) = 0;
  virtual Position position() const = 0;
  virtual void learn(const StepNews& news) = 0;
  // Names of attributes and tensors that differ from that image of the present step. Random streams and
  // train/eval flags do not count: an evaluation leaves them otherwise. Reads the whole state. nullptr: names
  // of tensors that the source has taken as unchanged, and that have changed without a trace. Reads all of
  // these; the next save has what was found.
  virtual std::vector<std::string> changed(const Snapshot* /*image*/) { return {}; }
  // What the program has probably forgotten, one text each, for its log. Called at each save after an update.
  // Only the first call may return texts. Changes nothing that decides the next step.
  virtual std::vector<std::string> doubts() { return {}; }

  // Read-only: would load() accept this checkpoint? Compares tensors and options; throws RefusedError (78)
  // with every difference. Called before the claim, without bytes of tensors.
  virtual void check(std::span<const TensorSpec> tensors, const Attributes& attributes,
                     const Overrides& overrides) = 0;
  // Makes the state equal to the snapshot, bit for bit; all or nothing. Restores RNG streams last.
  virtual void load(const Snapshot& snapshot, const LoadOptions& options) = 0;

  // For several ranks that train one state: fetches from the other ranks what describe() and the copies need,
  // so that these do not wait for other ranks until the next update. Collective: every rank calls it at the
  // same boundaries, where all save. Throws on all ranks if it is impossible.
  virtual void bring_together() {}
};

}}  // namespace holdfast::v0_2
