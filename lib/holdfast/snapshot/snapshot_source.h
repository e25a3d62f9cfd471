// The waist's interface: what the checkpoint side needs from whoever owns the training state. TrainState
// implements it with Torch; tests implement it with plain memory.
//
// Threads: every method is called on the training thread, except where a call says otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/snapshot/cursor.h"
#include "holdfast/snapshot/snapshot.h"

namespace holdfast::inline v1 {

// What one optimizer update tells. One that was left out is a step as well: its data is used up.
struct StepReport {
  std::optional<Cursor> applied = {};  // the batch's cursor; absent: everything delivered so far was applied
  double loss = std::numeric_limits<double>::quiet_NaN();  // NaN also when the loop does not say
  bool evaluation_due = false;  // an evaluation belongs to this step boundary and has not run yet
  bool skipped = false;         // the update was left out: its gradients were not finite
};

// Which tensors to copy. `late` ones cannot change before the next optimizer update (parameters, optimizer
// slots); `early` ones can (buffers, RNG, every user Stateful). What lies in device memory counts as late
// whatever it is: the device sets aside what changes early, in order with its work.
enum class Part { early, late, all };

// The late tensors of one step boundary, to be copied into an image while the training computes forward and
// backward. Keeps the memory that the tensors had then: a module that is moved or cast meanwhile leaves it.
//
// A device copies by itself (device_copy.h): then parts of the image are still on their way when run() has
// returned. The image is whole after run() by everybody and arrive() by somebody.
//
// Threads: run() by any number of threads at once; arrive() on any thread, by one; everything else on the
// training thread, while nobody runs it.
class LateCopy {
 public:
  // Nothing is written to the image afterwards: waits for what is on its way.
  virtual ~LateCopy() = default;
  // Copies what no other run() has taken yet.
  virtual void run() noexcept = 0;
  // Names of tensors whose memory is no longer, bit for bit, what the image holds. Reads all of them.
  // Requires a whole image.
  virtual std::vector<std::string> changed() const = 0;

  virtual bool on_its_way() const noexcept { return false; }
  // Whatever the training does from here on reaches the image no more, also without run() and hold_update().
  virtual bool independent() const noexcept { return false; }
  // What the training gives its device from here on waits there for the copies; this thread does not.
  virtual void hold_update() noexcept {}
  // Waits. Throws Error when a copy failed.
  virtual void arrive() {}
};

// What an image's memory needs so that a device can copy into it quickly (page-locking). Called once for each
// image; what it returns goes with the memory. Never throws; nullptr where nothing could be done.
using PrepareImage = std::function<std::shared_ptr<void>(std::span<std::byte>)>;

// Names of recorded options whose difference the user accepts (`--override NAME`), full or after the last
// dot.
using Overrides = std::vector<std::string>;

class SnapshotSource {
 public:
  virtual ~SnapshotSource() = default;

  // The tensors of the state as it is now, in a fixed order. May differ from the last call once optimizer
  // slots exist; then the checkpoint side plans anew.
  virtual std::vector<TensorSpec> describe() = 0;
  // Copies each tensor of `layout` into its slot, or what layout.wanted() asks for of it. Requires
  // layout.tensors() == describe(). So do the copies below.
  virtual void copy_tensors(const ImageLayout& layout, std::span<std::byte> image, Part part) = 0;
  // Part::late, not copied yet. What cannot be copied by another thread (device memory, unusual strides) is
  // copied at once. Requires, as copy_tensors does; the image outlives the copy.
  virtual std::unique_ptr<LateCopy> prepare_late(const ImageLayout& layout, std::span<std::byte> image) = 0;

  // Whether some of the state lies in device memory.
  virtual bool on_device() const { return false; }
  // Requires on_device(). Part::late as prepare_late does, but independent(): for a loop that does not
  // announce its updates. May wait, where a device has no spare memory.
  virtual std::unique_ptr<LateCopy> prepare_independent(const ImageLayout& layout,
                                                        std::span<std::byte> image) {
    return prepare_late(layout, image);
  }
  // Empty: nothing. The function may be called after the source is gone.
  virtual PrepareImage image_preparation() const { return {}; }

  // These change before the update after all: Part::early from now on.
  virtual void copy_early(std::span<const std::string> names) = 0;
  // Everything that is not a tensor, the step among it ("step").
  virtual Attributes attributes() = 0;

  // One optimizer update was applied, or left out: the state is now at the next step boundary.
  virtual void advance(const StepReport& report) = 0;
  virtual std::int64_t step() const = 0;

  // Read-only: would load() accept this checkpoint? Compares tensors and options and throws RefusedError that
  // names every difference (78). Called before an attempt is claimed, with attributes alone and no bytes.
  virtual void check(std::span<const TensorSpec> tensors, const Attributes& attributes,
                     const Overrides& overrides) = 0;
  // Becomes the snapshot, bit for bit; all or nothing. RNG streams are restored last.
  virtual void load(const Snapshot& snapshot, const Overrides& overrides) = 0;
  // Takes model tensors alone (`--init-from`); everything else stays fresh.
  virtual void load_weights(const Snapshot& snapshot) = 0;
  // Whether load_weights() looks at this tensor of a checkpoint: the others are not even read.
  virtual bool takes_weight(const TensorSpec& /*tensor*/) const { return true; }

  // Where several ranks train one state together, at a boundary where all of them save: fetches what the
  // others have and describe() and the copies need, which then wait for nobody until the next update.
  // Collective: every rank calls it at the same boundaries. Throws what makes it impossible for all.
  virtual void bring_together() {}
  // Whether this tensor is every rank's own (random numbers), and not the same on all. It is early, and of
  // one type and shape on all ranks.
  virtual bool own_of_rank(const TensorSpec& /*tensor*/) const { return false; }
  // Whether this tensor, as describe() told it last, is the same to the bit on all ranks at every boundary
  // where all of them save (after bring_together()). Of such a tensor any rank may write any part into the
  // checkpoint, and nobody compares: where it is not true, a checkpoint would be of no rank's state. What is
  // neither this nor a rank's own is taken from rank 0.
  virtual bool replicated(const TensorSpec& /*tensor*/) const { return false; }
  // Copies those alone. Requires that layout.tensors() are those of describe() that are a rank's own.
  // To be provided with own_of_rank().
  virtual void copy_own(const ImageLayout& /*layout*/, std::span<std::byte> /*image*/) {
    throw Error("this training state has tensors that are each rank's own, and cannot copy them alone");
  }
  // After a load() of rank 0's: own ones for this rank, which the checkpoint has none of; a function of the
  // loaded state and the rank alone. Requires rank > 0.
  virtual void derive_own(int /*rank*/) {}
};

}  // namespace holdfast::inline v1
