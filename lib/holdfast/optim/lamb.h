// LAMB: Adam's direction with decoupled weight decay, scaled for each tensor by its trust ratio (You et al.,
// "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", 2019, arXiv:1904.00962,
// algorithm 2, with the identity for phi). For update t of a parameter x with gradient g:
//
//   m = beta1 m + (1 - beta1) g          v = beta2 v + (1 - beta2) g^2
//   r = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay x
//   x = x - lr ratio r                   ratio = |x| / |r|; 1 where either norm is 0
//
// Groups without weight decay take ratio 1, as the authors' program does for biases and norms
// (optim/decay_groups.h makes such groups); `adapt_all` scales them too. Clipping the whole gradient first,
// as common in pre-training, is optim/clip.h's.
//
//   holdfast::Lamb optimizer(holdfast::decay_groups(*net, holdfast::LambOptions(2e-3).weight_decay(0.01)),
//                            holdfast::LambOptions(2e-3));
//
// The moments and the direction come from one fused kernel a list of tensors, the rest from at::_foreach_*.
// Norms of 16-bit parameters are computed in float. torch::optim has no LAMB: OptimizerState (TrainState)
// saves and restores it as "LAMB", slots exp_avg and exp_avg_sq; torch::save does not know it.
// Agrees with the formula in double within 1e-5 (float) and 1e-13 (double) after 50 updates.
//
// Requires, Errors, Threads: as fused_step.h. On a GPU nobody waits; scaling costs one launch a tensor.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "holdfast/optim/fused_sgd.h"
#include "holdfast/optim/fused_step.h"
#include "holdfast/state/lamb_options.h"

namespace holdfast::inline v1 {

namespace internal {
struct AdamWork;
}

class Lamb : public torch::optim::Optimizer, public FusedStep {
 public:
  Lamb(std::vector<torch::optim::OptimizerParamGroup> groups, LambOptions defaults, FusedOptions more = {});
  Lamb(std::vector<at::Tensor> parameters, LambOptions defaults, FusedOptions more = {});
  ~Lamb() override;

  at::Tensor step(LossClosure closure = nullptr) override;
  void step_scaled(const std::optional<at::Tensor>& grad_scale,
                   const std::optional<at::Tensor>& found_inf) override;
  void write_rates() override;

  Kind kind() const override { return Kind::lamb; }
  bool maximizes() const override { return more_.maximize; }
  void settle() override;

 protected:
  virtual bool decides_on(at::Device device) const { return !device.is_cpu(); }

 private:
  FusedOptions more_;
  std::unique_ptr<internal::AdamWork> work_;
};

}  // namespace holdfast::inline v1
