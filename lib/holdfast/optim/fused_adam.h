// torch::optim::Adam and torch::optim::AdamW, each update in one kernel a list of tensors (at::_fused_adam_,
// at::_fused_adamw_) where torch's takes a dozen a tensor. Use them as FusedSgd (fused_sgd.h): constructed
// from groups or from a torch::optim object, which it can be given back to.
//
//   holdfast::FusedAdamW optimizer(net->parameters(), torch::optim::AdamWOptions(3e-4));
//
// They are torch::optim's classes: groups, options (amsgrad included), slots and checkpoints are those.
//
// Bits. Not torch::optim's: torch's first moment is beta m + (1 - beta) g in two roundings, the kernels
// interpolate, m + (1 - beta)(g - m). Per update, from equal states: moments within 2 ulp, parameters within
// 4, an ulp being that of the largest number in the sum: where summands cancel, their small difference is
// less exact in both. After 50 updates: within 1e-5 (float) and 1e-14 (double) of the largest parameter.
// Asserted on a CPU. The same kernels as Python's fused=True. float16 and bfloat16 on a CPU compute in float
// and round once an update, where torch::optim rounds after every operation; so an eps of 1e-8, which is 0 in
// float16, does no harm here.
//
// Counted updates (bias correction). On a CPU they are in the parameters' states as torch's are. On a GPU
// they are counted on the device, as float, so that a skipped update does not count and nobody waits;
// settle(), which a checkpoint calls, brings the states up to date.
//
// Requires, Errors, Threads: as fused_step.h. A module is moved or converted before the first update.
#pragma once

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>

#include "holdfast/optim/fused_optimizer.h"

namespace holdfast::inline v1 {

namespace internal {
struct AdamKernel;
struct AdamWKernel;
}  // namespace internal

extern template class FusedOptimizer<torch::optim::Adam, torch::optim::AdamOptions, internal::AdamKernel>;
using FusedAdam = FusedOptimizer<torch::optim::Adam, torch::optim::AdamOptions, internal::AdamKernel>;

extern template class FusedOptimizer<torch::optim::AdamW, torch::optim::AdamWOptions, internal::AdamWKernel>;
using FusedAdamW = FusedOptimizer<torch::optim::AdamW, torch::optim::AdamWOptions, internal::AdamWKernel>;

}  // namespace holdfast::inline v1
