// Options and per-parameter state of the LAMB optimizer (optim/lamb.h, which says what each variant is),
// made as torch::optim makes its own. They are here because a checkpoint of them is OptimizerState's.
//
// Threads: plain values.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/arg.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <tuple>

namespace holdfast::inline v1 {

struct LambOptions : torch::optim::OptimizerCloneableOptions<LambOptions> {
  LambOptions(double rate = 1e-3) : lr_(rate) {}  // NOLINT(google-explicit-constructor): as torch's
  double get_lr() const override { return lr(); }
  void set_lr(double rate) override { lr(rate); }

  TORCH_ARG(double, lr);
  using Betas = std::tuple<double, double>;
  TORCH_ARG(Betas, betas) = std::make_tuple(0.9, 0.999);
  TORCH_ARG(double, eps) = 1e-6;
  TORCH_ARG(double, weight_decay) = 0;
  // The trust ratio also for groups without weight decay; false: there it is 1.
  TORCH_ARG(bool, adapt_all) = false;
  // Before anything else, all gradients of all groups are divided by norm / max_grad_norm where their common
  // norm is above it; 0: never. The same in every group. Costs a pass over the gradients.
  TORCH_ARG(double, max_grad_norm) = 0;
  // The first moment is a mean of gradients; false: their decaying sum.
  TORCH_ARG(bool, grad_averaging) = true;
  // Moments are divided by what of them an infinite past would have filled.
  TORCH_ARG(bool, bias_correction) = true;
  // Weight decay is added to the direction; false: to the gradient, before the moments (L2).
  TORCH_ARG(bool, decoupled) = true;
  // The weights' norm in the trust ratio counts as this much at most; 0: as it is.
  TORCH_ARG(double, most_norm) = 0;
};

struct LambParamState : torch::optim::OptimizerCloneableParamState<LambParamState> {
  TORCH_ARG(std::int64_t, step) = 0;
  TORCH_ARG(at::Tensor, exp_avg);
  TORCH_ARG(at::Tensor, exp_avg_sq);
};

}  // namespace holdfast::inline v1
