#include "holdfast/train/step.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>

#include <string>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/distributed/data_parallel.h"
#include "holdfast/distributed/sum_over_ranks.h"
#include "holdfast/optim/clip.h"
#include "holdfast/optim/fused_step.h"
#include "holdfast/precision/autocast.h"
#include "holdfast/precision/grad_scaler.h"
#include "holdfast/train/internal/device_of.h"

namespace holdfast { inline namespace v1 {

Step::Step(torch::optim::Optimizer& optimizer, Loss loss, const StepOptions& options)
    : optimizer_(&optimizer),
      fused_(dynamic_cast<FusedStep*>(&optimizer)),
      loss_(std::move(loss)),
      options_(options) {
  if (options.accumulation < 1) {
    throw UsageError("a step needs at least one micro-batch, not " + std::to_string(options.accumulation));
  }
  if (!(options.clip_grad_norm >= 0)) throw UsageError("clip_grad_norm must not be negative");
  if (!(options.clip_micro_batches >= 0)) throw UsageError("clip_micro_batches must not be negative");
  if (needs_scaler(options.precision) && options.scaler == nullptr) {
    throw UsageError(std::string(word_of(options.precision)) +
                     " needs a gradient scaler: without one small gradients become 0");
  }
  if (dynamic_cast<torch::optim::LBFGS*>(&optimizer) != nullptr) {
    throw UsageError(
        "LBFGS evaluates the loss several times a step: write that loop yourself (see own_loop)");
  }
  if (options.parallel != nullptr && !options.parallel->group().alone()) {
    if (options.clip_micro_batches > 0) {
      throw UsageError(
          "clip_micro_batches clips what one process adds to the gradient: not with several ranks");
    }
    sum_ = std::make_unique<SumOverRanks>(options.parallel->group(), "losses");
    if (options.graph && options.parallel->group().rank() == 0) {
      log_warning(
          "steps run without CUDA graphs: with several ranks gradients are summed while they are made");
    }
  }
  if (options.graph && !sum_) captured_ = std::make_unique<CapturedPass>(optimizer, options.graph_options);
}

Step::~Step() = default;
Step::Step(Step&&) noexcept = default;
Step& Step::operator=(Step&&) noexcept = default;

void Step::forget_graph() {
  if (captured_) captured_->forget();
}

std::optional<StepResult> Step::run(const Batch& batch, const std::function<void()>& before_update) {
  const bool first = losses_.empty();
  if (captured_) {
    losses_.push_back(captured_->run(batch, first, [this](const Batch& inputs) { return pass(inputs); }));
  } else {
    // CapturedPass zeroes gradients itself: a replay needs them at fixed addresses.
    if (first) optimizer_->zero_grad();
    losses_.push_back(pass(batch));
  }
  const auto micro_batches = static_cast<std::int64_t>(losses_.size());
  if (!batch.completes_update) {
    // A mismatch would otherwise train with a wrong mean, silently.
    if (micro_batches < options_.accumulation) return std::nullopt;
    throw UsageError("the loader gives more batches an update than the step's accumulation of " +
                     std::to_string(options_.accumulation) + ": set both to the same number");
  }
  if (micro_batches != options_.accumulation) {
    throw UsageError("the loader gives " + std::to_string(micro_batches) +
                     " batches an update, the step expects " + std::to_string(options_.accumulation) +
                     ": set both to the same number");
  }
  if (before_update) before_update();
  return update();
}

// Does not wait for a device or read from it (unless the loss function does), so it can be captured.
// Autocast's casts end with its scope in forward(), so each replay makes them again.
at::Tensor Step::pass(const Batch& batch) {
  if (options_.parallel != nullptr) options_.parallel->before_forward();
  const at::Tensor loss = forward(batch);
  if (sum_ && batch.completes_update) {
    at::Tensor sum = loss.detach().to(at::kDouble).reshape({1}).clone();
    for (const at::Tensor& earlier : losses_) sum.add_(earlier);
    sum_->begin(sum);
  }
  options_.clip_micro_batches > 0 ? clipped_backward(loss) : backward(loss, batch.completes_update);
  return loss.detach();
}

at::Tensor Step::forward(const Batch& batch) {
  if (!autocast_type(options_.precision)) return loss_(batch);
  const AutocastGuard autocast(options_.precision, internal::device_of(*optimizer_).type());
  return loss_(batch);
}

void Step::backward(const at::Tensor& loss, bool last) {
  const at::Tensor mean =
      options_.accumulation == 1 ? loss : loss / static_cast<double>(options_.accumulation);
  const at::Tensor scaled = options_.scaler != nullptr ? options_.scaler->scale(mean) : mean;
  if (options_.parallel == nullptr) {
    scaled.backward();
  } else {
    options_.parallel->backward(scaled, last ? Gradients::reduce : Gradients::accumulate);
  }
}

// Adds in place: a recorded pass writes to the memory of these sums.
void Step::clipped_backward(const at::Tensor& loss) {
  std::vector<std::pair<at::Tensor, at::Tensor>> sums;  // parameter, gradient so far
  for (auto& group : optimizer_->param_groups()) {
    for (at::Tensor& parameter : group.params()) {
      if (!parameter.grad().defined()) continue;
      sums.emplace_back(parameter, parameter.grad());
      parameter.mutable_grad() = at::Tensor();
    }
  }
  backward(loss, true);
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> added = gradients_of(*optimizer_);
  at::Tensor over = grad_norm(added) / options_.clip_micro_batches;
  if (options_.scaler != nullptr) over = over / options_.scaler->scale_tensor();
  for (const at::Tensor& gradient : added) gradient.div_(over.clamp_min(1).to(gradient.device()));
  for (auto& [parameter, sum] : sums) {
    if (parameter.grad().defined()) sum.add_(parameter.grad());
    parameter.mutable_grad() = sum;
  }
}

StepResult Step::update() {
  at::Tensor norm;
  at::Tensor left_out;  // 1 if the gradients are not finite; undefined if nothing checks them
  if (options_.scaler != nullptr) left_out = options_.scaler->unscale(*optimizer_);
  if (options_.clip_grad_norm > 0) {
    std::vector<at::Tensor> gradients = gradients_of(*optimizer_);
    norm = clip_grad_norm(gradients, options_.clip_grad_norm);
    // A gradient that is not finite makes the norm so. Finite gradients may overflow in the norm: also
    // skipped, but the scale is not lowered.
    left_out = at::isfinite(norm).logical_not().to(at::kFloat);
  }
  apply(left_out);
  if (options_.scaler != nullptr) options_.scaler->update();

  // Only now: reading a value earlier would let the device idle between backward and update.
  StepResult result;
  result.loss = mean_loss();
  losses_.clear();
  if (norm.defined()) result.grad_norm = norm.item().toDouble();
  result.skipped = left_out.defined() && left_out.item<float>() != 0;
  return result;
}

double Step::mean_loss() {
  const auto count = static_cast<double>(losses_.size());
  if (sum_) return sum_->wait().item<double>() / (count * options_.parallel->group().world_size());
  double sum = 0;
  for (const at::Tensor& loss : losses_) sum += loss.item().toDouble();
  return sum / count;
}

void Step::apply(const at::Tensor& left_out) {
  if (!left_out.defined()) {
    optimizer_->step();
  } else if (fused_ != nullptr) {
    fused_->step_scaled(std::nullopt, left_out);
  } else if (left_out.item<float>() == 0) {
    optimizer_->step();
  }
}

}}  // namespace holdfast::v1
