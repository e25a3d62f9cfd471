#include "holdfast/train/step.h"

#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>

#include <cmath>
#include <string>
#include <utility>

#include "holdfast/base/error.h"

namespace holdfast::inline v1 {

Step::Step(torch::optim::Optimizer& optimizer, Loss loss, const StepOptions& options)
    : optimizer_(&optimizer), loss_(std::move(loss)), options_(options) {
  if (options.accumulation < 1) {
    throw UsageError("a step needs at least one micro-batch, not " + std::to_string(options.accumulation));
  }
  if (!(options.clip_grad_norm >= 0)) throw UsageError("clip_grad_norm must not be negative");
  if (dynamic_cast<torch::optim::LBFGS*>(&optimizer) != nullptr) {
    throw UsageError(
        "LBFGS evaluates the loss several times a step: write that loop yourself (see own_loop)");
  }
}

std::optional<StepResult> Step::run(const Batch& batch, const std::function<void()>& before_update) {
  if (micro_batches_ == 0) optimizer_->zero_grad();
  at::Tensor loss = loss_(batch);
  // Backward first: reading the value would make a device idle between the two.
  (options_.accumulation == 1 ? loss : loss / static_cast<double>(options_.accumulation)).backward();
  loss_sum_ += loss.item().toDouble();
  ++micro_batches_;
  if (!batch.completes_update) {
    if (micro_batches_ < options_.accumulation) return std::nullopt;
    throw UsageError("the loader gives more batches an update than the step's accumulation of " +
                     std::to_string(options_.accumulation) + ": set both to the same number");
  }
  if (micro_batches_ != options_.accumulation) {
    throw UsageError("the loader gives " + std::to_string(micro_batches_) +
                     " batches an update, the step expects " + std::to_string(options_.accumulation) +
                     ": set both to the same number");
  }
  if (before_update) before_update();
  return update();
}

StepResult Step::update() {
  StepResult result;
  result.loss = loss_sum_ / static_cast<double>(micro_batches_);
  loss_sum_ = 0;
  micro_batches_ = 0;
  if (options_.clip_grad_norm > 0) {
    std::vector<at::Tensor> parameters;
    for (const auto& group : optimizer_->param_groups()) {
      parameters.insert(parameters.end(), group.params().begin(), group.params().end());
    }
    result.grad_norm = torch::nn::utils::clip_grad_norm_(parameters, options_.clip_grad_norm);
    result.skipped = !std::isfinite(*result.grad_norm);
  }
  if (!result.skipped) optimizer_->step();
  return result;
}

}  // namespace holdfast::inline v1
