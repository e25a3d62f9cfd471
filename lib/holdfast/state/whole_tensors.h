// For an optimizer of this library that has shares of tensors as its parameters (distributed/
// sharded_optimizer.h) and updates by numbers of the whole ones: LAMB by their norms. It knows what belongs
// together in its shares; what the others have is added by whoever dealt them out.
//
// Threads: the training thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace holdfast::inline v1 {

// `count` elements of tensor `parameter` of its group, from its element `from` on, lie at `at`.
struct Piece {
  std::size_t parameter = 0;
  std::int64_t from = 0;
  std::int64_t at = 0;
  std::int64_t count = 0;
};

class WholeTensors {
 public:
  virtual std::size_t count(std::size_t group) const = 0;
  // What lies in a parameter of the optimizer; of each whole tensor one piece at most. Elements that belong
  // to none are zeros.
  virtual std::span<const Piece> pieces(const at::Tensor& share) const = 0;
  // Adds the others' numbers to these, in place: the same bits on all ranks. Collective.
  virtual void add_up(at::Tensor& numbers) const = 0;

 protected:
  WholeTensors() = default;
  WholeTensors(const WholeTensors&) = default;
  WholeTensors& operator=(const WholeTensors&) = default;
  ~WholeTensors() = default;
};

}  // namespace holdfast::inline v1
