// torch::optim::SGD with momentum, Nesterov, dampening and weight decay, all of it in one kernel a list of
// tensors (at::_fused_sgd_) where torch's takes five a tensor.
//
//   holdfast::FusedSgd optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
//   holdfast::FusedSgd other(a_torch_sgd);        // its groups, options and slots; that one is left without
//   other.give_back(a_torch_sgd);                 // and back: the other one goes on
//
// Add to the TrainState, and schedule, the one that makes the updates; a save refuses the one that is left
// without slots. Members and what adopting does: fused_optimizer.h.
//
// It is a torch::optim::SGD: groups, options, slots, schedules and checkpoints (type, names, bits) are those.
//
// Bits. On a CPU, float and double: parameters and slots equal torch::optim::SGD's bit for bit, every update.
// On a GPU: within 1 ulp of the largest number in a sum, as the kernels contract sums of products otherwise,
// and the rate is a float. The same kernels as Python's fused=True.
// 16-bit parameters on a CPU: ATen's kernel for them loses updates in LibTorch 2.11 (it was tried at
// start-up); where it does, UsageError says so. Parameters of autocast are float.
//
// Differences from torch's that one may notice:
//   - a sparse gradient is a UsageError;
//   - with found_inf (fused_step.h) an update that is skipped makes no slots on a CPU. On a GPU they are
//     there, and zero, which is the same; only with dampening the first update waits for the answer.
//
// Requires, Errors, Threads: as fused_step.h. A module is moved or converted before the first update.
#pragma once

#include <torch/optim/sgd.h>

#include "holdfast/optim/fused_optimizer.h"

namespace holdfast::inline v1 {

namespace internal {
struct SgdKernel;
}

extern template class FusedOptimizer<torch::optim::SGD, torch::optim::SGDOptions, internal::SgdKernel>;
using FusedSgd = FusedOptimizer<torch::optim::SGD, torch::optim::SGDOptions, internal::SgdKernel>;

}  // namespace holdfast::inline v1
