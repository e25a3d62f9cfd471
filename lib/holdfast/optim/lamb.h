// LAMB: Adam's direction with decoupled weight decay, scaled for each tensor by its trust ratio (You et al.,
// "Large Batch Optimization for Deep Learning", 2019, arXiv:1904.00962, algorithm 2, with the identity for
// phi).
//
//   holdfast::Lamb optimizer(holdfast::decay_groups(*net, holdfast::LambOptions(2e-3).weight_decay(0.01)),
//                            holdfast::LambOptions(2e-3));
//
// The variants of apex, NVIDIA's BERT, timm and TensorFlow are options of LambOptions:
// docs/precisions_and_optimizers.md has a table. Requires, errors, threads: as in fused_step.h. On a GPU no
// thread waits; scaling costs one launch per tensor.
#pragma once

#include "holdfast/base/export.h"
#include "holdfast/optim/fused_optimizer.h"
#include "holdfast/state/lamb_options.h"

namespace holdfast { inline namespace v0_2 {

namespace internal {
struct LambKernel;
}

// Update t of a parameter x with gradient g:
//
//   m = beta1 m + (1 - beta1) g          v = beta2 v + (1 - beta2) g^2
//   r = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay x
//   x = x - lr ratio r                   ratio = |x| / |r|; 1 if either norm is 0
//
// Groups without weight decay have ratio 1, as the authors' program does for biases and norms. Agrees with
// the formula in double within 2e-5 (float) and 1e-13 (double) after 50 updates. Norms of 16-bit parameters
// are computed in float.
//
// max_grad_norm clips in the update's own kernels and leaves the gradients clipped. Unscale gradients first,
// or pass grad_scale. A ShardedOptimizer (distributed/sharded_optimizer.h) passes shares of tensors; norms
// are those of the whole tensors. OptimizerState saves slots exp_avg and exp_avg_sq as "LAMB"; torch::save
// does not know the class.
extern template class HOLDFAST_EXPORT
    FusedOptimizer<torch::optim::Optimizer, LambOptions, internal::LambKernel>;
using Lamb = FusedOptimizer<torch::optim::Optimizer, LambOptions, internal::LambKernel>;

}}  // namespace holdfast::v0_2
