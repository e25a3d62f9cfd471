// Learns what a program does with gradients between two updates. Only then is it known what a resumed run
// needs of them (docs/training_state.md#gradients).
//
// Looks at the boundaries after the start and after a save, at tensors' identities and version counters; it
// reads the gradient of a parameter only if that was changed once in a whole step.
//
// Errors: none. Threads: the training thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace holdfast { inline namespace v0_2 { namespace internal {

class GradientWatch {
 public:
  // By optimizer, or other part that trains: its parameters.
  using Owners = std::vector<std::vector<at::Tensor>>;
  // unknown: not seen yet. dropped: each step begins without a gradient (zero_grad()). kept: with zeros in
  // the same memory (zero_grad(false)). carried: with what earlier steps have added.
  enum class Fate { unknown, dropped, kept, carried };

  // A save: the program may act otherwise by now, so the next two boundaries are looked at.
  void begin() noexcept {
    if (looks_ == 0) looks_ = 2;
  }
  bool watching() const noexcept { return looks_ > 0; }
  // At a boundary.
  void look(const Owners& owners);
  // The gradients are those of a checkpoint. The next boundary is compared with them.
  void loaded(const Owners& owners);

  Fate fate(std::size_t owner) const noexcept {
    return owner < fates_.size() ? fates_[owner] : Fate::unknown;
  }
  bool carries() const noexcept { return carries_; }
  // For good: what an update leaves behind shows at some boundaries only.
  void carry(std::size_t owner);

 private:
  struct Seen {
    // Keeps the address from being used again, and no memory. Module::zero_grad() makes a new tensor of it.
    c10::weak_intrusive_ptr<c10::StorageImpl> memory;
    std::uint32_t version = 0;
  };
  Fate now(const Seen& then, const at::Tensor& gradient) const;

  int looks_ = 3;
  bool carries_ = false;                        // an owner does
  std::vector<Fate> fates_;                     // by owner
  std::unordered_map<const void*, Seen> seen_;  // by parameter: those with a gradient at the last look
};

// True if a save can tell something about this gradient: it exists and is dense.
bool dense_gradient(const at::Tensor& gradient);

}}}  // namespace holdfast::v0_2::internal
