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

#include <ATen/core/Tensor.h>
#include <torch/arg.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <tuple>

#include "holdfast/base/export.h"
#include "holdfast/optim/fused_optimizer.h"

namespace holdfast { inline namespace v0_2 {

// Rates, decay and norms are plain factors, as in torch::optim.
struct HOLDFAST_EXPORT LambOptions : torch::optim::OptimizerCloneableOptions<LambOptions> {
  LambOptions(double rate = 1e-3) : lr_(rate) {}  // NOLINT(google-explicit-constructor): as torch's
  double get_lr() const override { return lr(); }
  void set_lr(double rate) override { lr(rate); }

  TORCH_ARG(double, lr);
  using Betas = std::tuple<double, double>;
  TORCH_ARG(Betas, betas) = std::make_tuple(0.9, 0.999);
  TORCH_ARG(double, eps) = 1e-6;
  TORCH_ARG(double, weight_decay) = 0;
  // True: the trust ratio also scales groups without weight decay. False: their ratio is 1.
  TORCH_ARG(bool, adapt_all) = false;
  // If the norm over the gradients of all groups exceeds max_grad_norm, all are multiplied by max_grad_norm /
  // norm first. 0: never. Must be the same in every group. Costs one pass over the gradients.
  TORCH_ARG(double, max_grad_norm) = 0;
  // True: the first moment is the mean of the gradients. False: it is their decaying sum.
  TORCH_ARG(bool, grad_averaging) = true;
  // True: moments are divided by 1 - beta^step, as in Adam.
  TORCH_ARG(bool, bias_correction) = true;
  // True: weight decay is added to the direction. False: to the gradient, before the moments (L2).
  TORCH_ARG(bool, decoupled) = true;
  // Upper limit of the weights' norm in the trust ratio. 0: no limit.
  TORCH_ARG(double, most_norm) = 0;
};

struct HOLDFAST_EXPORT LambParamState : torch::optim::OptimizerCloneableParamState<LambParamState> {
  TORCH_ARG(std::int64_t, step) = 0;
  TORCH_ARG(at::Tensor, exp_avg);
  TORCH_ARG(at::Tensor, exp_avg_sq);
};

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
