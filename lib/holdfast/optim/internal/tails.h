// ATen's fused kernels for CPUs compute whole vectors exactly as its other loops do, but contract what is
// left over at a tensor's end into other sums: one last bit differs there. So the ends of all tensors of a
// list are computed once more, side by side in a row of whole vectors, and put where they belong.
//
// Requires: the list's rows are dense, on a CPU (kernel_lists.h sees to that). 16-bit types are left alone.
// Threads: the training thread.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "holdfast/optim/internal/kernel_lists.h"

namespace holdfast::inline v1::internal {

class Tails {
 public:
  // Appends the row to the list: parameters, gradients and the first slots, as they are before the kernel.
  void add(KernelList& list);
  // After the kernel: takes the row off the list and spreads it over the ends.
  void put_back(KernelList& list);

 private:
  struct End {
    std::size_t row, bytes;
  };
  std::vector<End> ends_;
  std::array<at::Tensor, 3> scratch_;  // parameters, gradients, slots
};

}  // namespace holdfast::inline v1::internal
