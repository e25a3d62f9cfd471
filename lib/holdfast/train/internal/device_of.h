// The device of an optimizer's first parameter; the CPU if it has none.
//
// Threads: pure.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

namespace holdfast { inline namespace v0_2 { namespace internal {

inline at::Device device_of(const torch::optim::Optimizer& optimizer) {
  for (const auto& group : optimizer.param_groups()) {
    if (!group.params().empty()) return group.params().front().device();
  }
  return at::kCPU;
}

}}}  // namespace holdfast::v0_2::internal
