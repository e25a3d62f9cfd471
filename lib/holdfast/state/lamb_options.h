// Options and per-parameter state of the LAMB optimizer (optim/lamb.h describes the variants). They are here
// because OptimizerState saves them in checkpoints. The structs follow torch::optim's pattern.
//
// Units: rates, decay and norms are plain factors, as in torch::optim. Threads: plain values.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/arg.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <tuple>

#include "holdfast/base/export.h"

namespace holdfast { inline namespace v0_2 {

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

}}  // namespace holdfast::v0_2
