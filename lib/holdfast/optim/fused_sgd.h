// torch::optim::SGD with momentum, Nesterov, dampening and weight decay in one kernel per list of tensors
// (at::_fused_sgd_); torch's takes five per tensor. Groups, options, slots and checkpoints are
// torch::optim::SGD's.
//
//   holdfast::FusedSgd optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
//   holdfast::FusedSgd other(a_torch_sgd);        // takes over its groups, options and slots
//   other.give_back(a_torch_sgd);                 // a_torch_sgd continues
//
// Add the one that makes the updates to the TrainState, and schedule that one. fused_optimizer.h describes
// the members. Requires, errors, threads: as in fused_step.h. Move or convert a module before the first
// update.
#pragma once

#include <torch/optim/sgd.h>

#include "holdfast/base/export.h"
#include "holdfast/optim/fused_optimizer.h"

namespace holdfast { inline namespace v0_2 {

namespace internal {
struct SgdKernel;
}

// Bits. On a CPU (float, double) they equal torch::optim::SGD's in every update. On a GPU they are within 1
// ulp of the largest number in a sum: the kernels contract sums of products, and the rate is a float. They
// are those of Python's fused=True.
//
// Differences from torch::optim::SGD:
// - A sparse gradient is a UsageError.
// - 16-bit parameters on a CPU are a UsageError if ATen's kernel loses updates, as in LibTorch 2.11 (tried
//   once). Under autocast parameters are float.
// - On a CPU an update that found_inf skips makes no slots. On a GPU it makes slots of zeros, which has the
//   same effect. Only with dampening the first update waits for found_inf.
extern template class HOLDFAST_EXPORT
    FusedOptimizer<torch::optim::SGD, torch::optim::SGDOptions, internal::SgdKernel>;
using FusedSgd = FusedOptimizer<torch::optim::SGD, torch::optim::SGDOptions, internal::SgdKernel>;

}}  // namespace holdfast::v0_2
