#include "holdfast/optim/lamb.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include <utility>

#include "holdfast/optim/internal/adam_work.h"

namespace holdfast::inline v1 {
namespace {

using internal::KernelList;

std::vector<at::Tensor> scaled_rates(const KernelList& list, const std::vector<at::Tensor>& directions,
                                     const at::Tensor& rate) {
  const bool narrow = list.dtype == at::kHalf || list.dtype == at::kBFloat16;
  const auto wide = narrow ? std::optional(at::kFloat) : std::nullopt;
  const at::Tensor weights = at::stack(at::_foreach_norm(list.parameters, 2, wide));
  const at::Tensor updates = at::stack(at::_foreach_norm(directions, 2, wide));
  const at::Tensor ratios = at::where(weights.gt(0).logical_and(updates.gt(0)), weights / updates, 1.0);
  return (ratios * rate).to(weights.scalar_type()).unbind();
}

struct LambKind {
  using Options = LambOptions;
  using State = LambParamState;
  static constexpr char kName[] = "Lamb";
  static void run(KernelList& list, const Options& options, std::size_t group, bool maximize, bool on_device,
                  internal::DeviceRates& rates, const std::optional<at::Tensor>& scale,
                  const std::optional<at::Tensor>& found) {
    // Adam's kernel, started from zeros at rate -1, leaves its direction there; a skipped one leaves zeros.
    std::vector<at::Tensor> directions;
    directions.reserve(list.parameters.size());
    for (const at::Tensor& parameter : list.parameters) directions.push_back(at::zeros_like(parameter));
    const auto [beta1, beta2] = options.betas();
    at::_fused_adam_(directions, list.gradients, list.slots[0], list.slots[1], {}, list.steps, -1.0, beta1,
                     beta2, 0, options.eps(), false, maximize, scale, found);
    if (options.weight_decay() != 0) at::_foreach_add_(directions, list.parameters, options.weight_decay());

    const bool adapts = options.weight_decay() != 0 || options.adapt_all();
    if (!on_device && !adapts) {
      at::_foreach_add_(list.parameters, directions, -options.lr());
      return;
    }
    at::Tensor rate = on_device ? rates.of(group, options.lr(), list.device).neg()
                                : at::full({}, -options.lr(), at::kDouble);
    if (found) rate = rate * (1 - found->reshape({}));
    if (adapts) {
      at::_foreach_mul_(directions, scaled_rates(list, directions, rate));
    } else {
      at::_foreach_mul_(directions, rate.to(list.dtype));
    }
    at::_foreach_add_(list.parameters, directions);
  }
};

}  // namespace

Lamb::Lamb(std::vector<torch::optim::OptimizerParamGroup> groups, LambOptions defaults, FusedOptions more)
    : Optimizer(groups, std::make_unique<LambOptions>(internal::checked_adam(defaults, LambKind::kName))),
      more_(more),
      work_(std::make_unique<internal::AdamWork>()) {
  for (auto& group : param_groups())
    internal::check_adam(internal::options_of<LambOptions>(group, LambKind::kName), LambKind::kName);
}
Lamb::Lamb(std::vector<at::Tensor> parameters, LambOptions defaults, FusedOptions more)
    : Lamb(std::vector<torch::optim::OptimizerParamGroup>{torch::optim::OptimizerParamGroup(
               std::move(parameters))},
           std::move(defaults), more) {}
Lamb::~Lamb() = default;

at::Tensor Lamb::step(LossClosure closure) {
  at::Tensor loss;
  if (closure) {
    const at::AutoGradMode with_gradients(true);
    loss = closure();
  }
  step_scaled({}, {});
  return loss;
}

void Lamb::step_scaled(const std::optional<at::Tensor>& grad_scale,
                       const std::optional<at::Tensor>& found_inf) {
  work_->step<LambKind>(*this, more_.maximize, grad_scale, found_inf,
                        [this](at::Device device) { return decides_on(device); });
}

void Lamb::write_rates() { work_->write_rates(*this); }
void Lamb::settle() { work_->settle<LambParamState>(*this); }

}  // namespace holdfast::inline v1
