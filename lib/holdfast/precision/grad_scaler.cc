#include "holdfast/precision/grad_scaler.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <torch/optim/optimizer.h>

#include <cmath>
#include <unordered_set>

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 {
namespace {

const GradScalerOptions& checked(const GradScalerOptions& options) {
  // As a float, because that is how the device holds it.
  if (!(static_cast<float>(options.init_scale) > 0) ||
      !std::isfinite(static_cast<float>(options.init_scale))) {
    throw UsageError("a gradient scaler's init_scale is a positive float");
  }
  if (!(options.growth_factor > 1)) throw UsageError("a gradient scaler's growth_factor is above 1");
  if (!(options.backoff_factor > 0 && options.backoff_factor < 1)) {
    throw UsageError("a gradient scaler's backoff_factor lies between 0 and 1");
  }
  if (options.growth_interval < 1) throw UsageError("a gradient scaler's growth_interval is at least 1");
  return options;
}

void require_same(const at::Tensor& gradient, const at::Tensor& scale) {
  // As torch.amp does: dividing in FP16 would lose the small gradients that scaling has saved.
  if (gradient.scalar_type() == at::kHalf) {
    throw UsageError(
        "a gradient in FP16 cannot be unscaled without loss: keep the weights in FP32 and compute under "
        "autocast");
  }
  if (gradient.layout() != at::kStrided) throw UsageError("a gradient scaler takes dense gradients only");
  if (gradient.device() != scale.device()) {
    throw UsageError("a gradient lies on " + gradient.device().str() + ", the gradient scaler on " +
                     scale.device().str());
  }
}

}  // namespace

// On the device, so that a step never waits to learn whether it was skipped.
GradScaler::GradScaler(c10::Device device, const GradScalerOptions& options)
    : options_(checked(options)),
      scale_(at::full({}, options.init_scale, at::TensorOptions(at::kFloat).device(device))),
      growth_tracker_(at::zeros({}, at::TensorOptions(at::kInt).device(device))),
      found_inf_(at::zeros({}, at::TensorOptions(at::kFloat).device(device))),
      skipped_(at::zeros({}, at::TensorOptions(at::kLong).device(device))) {}

at::Tensor GradScaler::scale(const at::Tensor& loss) const {
  // Scaling again now would use a scale that update() has not seen.
  if (unscaled_) throw UsageError("the gradient scaler's update() was left out after unscale()");
  return loss * scale_;
}

const at::Tensor& GradScaler::unscale(const std::vector<at::Tensor>& gradients) {
  if (unscaled_) throw UsageError("the gradients were unscaled already since the last update()");
  std::vector<at::Tensor> defined;
  defined.reserve(gradients.size());
  // A module that is registered twice has its parameters listed twice. Dividing twice would be wrong.
  std::unordered_set<const at::TensorImpl*> seen;
  for (const at::Tensor& gradient : gradients) {
    if (!gradient.defined() || !seen.insert(gradient.unsafeGetTensorImpl()).second) continue;
    require_same(gradient, scale_);
    defined.push_back(gradient);
  }
  const at::NoGradGuard no_grad;
  // The check only sets this flag, so it has to be cleared for each step.
  found_inf_.zero_();
  if (!defined.empty()) {
    // In double, as torch.amp does: the float reciprocal of a scale that is no power of two has another last
    // bit.
    const at::Tensor inverse = scale_.to(at::kDouble).reciprocal().to(at::kFloat);
    at::_amp_foreach_non_finite_check_and_unscale_(defined, found_inf_, inverse);
  }
  unscaled_ = true;
  // After the division: the agreement changes only what follows from found_inf, never the gradients.
  if (agree_) agree_(found_inf_);
  return found_inf_;
}

const at::Tensor& GradScaler::unscale(const torch::optim::Optimizer& optimizer) {
  std::vector<at::Tensor> gradients;
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) gradients.push_back(parameter.grad());
  }
  return unscale(gradients);
}

void GradScaler::update() {
  if (!unscaled_) throw UsageError("the gradient scaler's update() needs an unscale() before it");
  const at::NoGradGuard no_grad;
  at::_amp_update_scale_(scale_, growth_tracker_, found_inf_, options_.growth_factor, options_.backoff_factor,
                         options_.growth_interval);
  // Counted on the device, so update() never waits.
  skipped_.add_(found_inf_.ne(0).to(at::kLong));
  unscaled_ = false;
}

std::int64_t GradScaler::skipped() const { return skipped_.item<std::int64_t>(); }

void GradScaler::save(StateWriter& out) const {
  if (unscaled_) throw UsageError("a save came between the gradient scaler's unscale() and update()");
  out.option("growth_factor", options_.growth_factor);
  out.option("backoff_factor", options_.backoff_factor);
  out.option("growth_interval", options_.growth_interval);
  out.put_tensor("scale", scale_);
  out.put_tensor("growth_tracker", growth_tracker_);
  out.put_tensor("skipped", skipped_);
}

void GradScaler::load(const StateReader& in) {
  const at::NoGradGuard no_grad;
  const at::Tensor scale = in.get_tensor("scale");
  const at::Tensor tracker = in.get_tensor("growth_tracker");
  const at::Tensor skipped = in.get_tensor("skipped");
  if (scale.numel() != 1 || tracker.numel() != 1 || skipped.numel() != 1) {
    throw RefusedError(
        "the recorded scale, growth_tracker and skipped of a gradient scaler are one number each");
  }
  const auto recorded = scale.item<float>();
  // A scale of 0 is possible: a run that overflows at every step halves it until it underflows.
  if (!(recorded >= 0) || !std::isfinite(recorded)) {
    throw RefusedError("the recorded scale of a gradient scaler is " + std::to_string(recorded));
  }
  // In place: a captured CUDA graph refers to this memory.
  scale_.copy_(scale.reshape({}));
  growth_tracker_.copy_(tracker.reshape({}));
  skipped_.copy_(skipped.reshape({}));
  unscaled_ = false;
}

}}  // namespace holdfast::v0_2
