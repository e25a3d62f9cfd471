// Makes the bits of CPU kernels equal torch::optim's at the end of each tensor. ATen's fused kernels contract
// the sums of the last elements, which do not fill a vector, and differ there in a last bit. So the ends of
// all tensors are computed again, side by side as whole vectors, and copied back.
//
// Requires: the list's rows are dense, on a CPU (kernel_lists.h ensures that). Ignores 16-bit types. Threads:
// the training thread.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "holdfast/optim/internal/kernel_lists.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class Tails {
 public:
  // Before the kernel: appends a row with the ends of parameters, gradients and first slots.
  void add(KernelList& list);
  // After the kernel: removes the row and copies the results to the ends.
  void put_back(KernelList& list);

 private:
  struct End {
    std::size_t row, bytes;
  };
  std::vector<End> ends_;
  std::array<at::Tensor, 3> scratch_;  // parameters, gradients, slots
};

}}}  // namespace holdfast::v0_2::internal
