// Lets an optimizer update shares of tensors (distributed/sharded_optimizer.h) by numbers of the whole
// tensors; LAMB needs their norms. The optimizer sums over the pieces in its shares; add_up() adds the sums
// of other ranks.
//
// Threads: the training thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace holdfast { inline namespace v0_2 {

// `count` elements of tensor `parameter` of its group, starting at element `from`, lie at offset `at`.
struct Piece {
  std::size_t parameter = 0;
  std::int64_t from = 0;
  std::int64_t at = 0;
  std::int64_t count = 0;
};

class WholeTensors {
 public:
  virtual std::size_t count(std::size_t group) const = 0;
  // The pieces that lie in one parameter of the optimizer, at most one per whole tensor. Elements outside all
  // pieces are zeros.
  virtual std::span<const Piece> pieces(const at::Tensor& share) const = 0;
  // Adds the numbers of the other ranks to these, in place; all ranks get the same bits. Collective.
  virtual void add_up(at::Tensor& numbers) const = 0;

 protected:
  WholeTensors() = default;
  WholeTensors(const WholeTensors&) = default;
  WholeTensors& operator=(const WholeTensors&) = default;
  ~WholeTensors() = default;
};

}}  // namespace holdfast::v0_2
