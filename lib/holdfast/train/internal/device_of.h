// Where an optimizer's parameters lie: the device of the first one, the CPU when there is none.
//
// Threads: pure.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

namespace holdfast::inline v1::internal {

inline at::Device device_of(const torch::optim::Optimizer& optimizer) {
  for (const auto& group : optimizer.param_groups()) {
    if (!group.params().empty()) return group.params().front().device();
  }
  return at::kCPU;
}

}  // namespace holdfast::inline v1::internal
