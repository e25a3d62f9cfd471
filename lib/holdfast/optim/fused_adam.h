// torch::optim::Adam and AdamW with one kernel per list of tensors (at::_fused_adam_, at::_fused_adamw_)
// instead of a dozen per tensor. Groups, options (amsgrad too), slots and checkpoints are torch::optim's. Use
// them as FusedSgd:
//
//   holdfast::FusedAdamW optimizer(net->parameters(), torch::optim::AdamWOptions(3e-4));
//
// The last bits differ from torch::optim's (below); they are those of Python's fused=True. Requires, errors,
// threads: as in fused_step.h. Move or convert a module before the first update.
#pragma once

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>

#include "holdfast/base/export.h"
#include "holdfast/optim/fused_optimizer.h"

namespace holdfast { inline namespace v0_2 {

namespace internal {
struct AdamKernel;
struct AdamWKernel;
}  // namespace internal

// Bits. torch::optim rounds twice in m = beta m + (1 - beta) g; these kernels interpolate, m + (1 - beta)(g -
// m). After one update from equal states moments differ by at most 2 ulp and parameters by 4 ulp. An ulp is
// that of the largest number in the sum. After 50 updates parameters differ by at most 1e-5 (float) and 1e-14
// (double) of the largest parameter. Tests assert this on a CPU. float16 and bfloat16 on a CPU compute in
// float and round once per update; torch::optim rounds after each operation. So an eps of 1e-8, which is 0 in
// float16, does no harm here.
//
// On a GPU Torch's kernel takes the betas, and 1 - beta^t, in float: beside torch::optim's doubles an update
// is up to 2e-5 of itself larger or smaller, most in the first updates (measured; Python's fused=True does
// the same).
//
// Step counts (bias correction). On a CPU they are in the parameters' states, as torch's. On a GPU the device
// counts in float, so that a skipped update does not count and no thread waits. settle(), which a checkpoint
// calls, copies them.
extern template class HOLDFAST_EXPORT
    FusedOptimizer<torch::optim::Adam, torch::optim::AdamOptions, internal::AdamKernel>;
using FusedAdam = FusedOptimizer<torch::optim::Adam, torch::optim::AdamOptions, internal::AdamKernel>;

extern template class HOLDFAST_EXPORT
    FusedOptimizer<torch::optim::AdamW, torch::optim::AdamWOptions, internal::AdamWKernel>;
using FusedAdamW = FusedOptimizer<torch::optim::AdamW, torch::optim::AdamWOptions, internal::AdamWKernel>;

}}  // namespace holdfast::v0_2
