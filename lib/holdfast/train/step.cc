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
#include "holdfast/kernels/batch_counts.h"
#include "holdfast/optim/clip.h"
#include "holdfast/optim/fused_step.h"
#include "holdfast/precision/autocast.h"
#include "holdfast/precision/cast_together.h"
#include "holdfast/precision/grad_scaler.h"
#include "holdfast/train/internal/device_of.h"
#include "holdfast/train/late_results.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// Updates of an optimizer that never gets a gradient change nothing, for ever, and fail nowhere.
void require_gradient(const torch::optim::Optimizer& optimizer) {
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      if (parameter.grad().defined()) return;
    }
  }
  throw UsageError(
      "no parameter of this step's optimizer has a gradient: the loss does not depend on them. If a "
      "ShardedOptimizer took the optimizer over, its parameters are shares: neither Step nor Trainer can "
      "train them. Write the loop with the calls of ranks_in_detail#the-sharded-optimizer");
}

}  // namespace

Step::Step(torch::optim::Optimizer& optimizer, Loss loss, const StepOptions& options)
    : optimizer_(&optimizer),
      fused_(dynamic_cast<FusedStep*>(&optimizer)),
      loss_(std::move(loss)),
      options_(options),
      results_(std::make_unique<LateResults>()) {
  if (options.accumulation < 1) {
    throw UsageError("a step needs at least one micro-batch, not " + std::to_string(options.accumulation));
  }
  // Negated, so that NaN is refused as well.
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
    // Begun before the backward pass and read after the update, so no rank waits for it.
    sum_ = std::make_unique<SumOverRanks>(options.parallel->group(), "losses");
    if (options.graph && options.parallel->group().rank() == 0) {
      log_warning(
          "steps run without CUDA graphs: with several ranks gradients are summed while they are made");
    }
  }
  // Gradients of one node arrive together, at the end of backward: too late to reduce them meanwhile.
  if (options.layers != nullptr && !sum_) casts_ = std::make_unique<CastTogether>(*options.layers);
  if (options.graph && !sum_) captured_ = std::make_unique<CapturedPass>(optimizer, options.graph_options);
}

Step::~Step() = default;
Step::Step(Step&&) noexcept = default;
Step& Step::operator=(Step&&) noexcept = default;

void Step::forget_graph() {
  if (captured_) captured_->forget();
}

std::optional<StepResult> Step::run(const Batch& batch, const std::function<void()>& before_update) {
  if (!launch(batch, before_update)) return std::nullopt;
  return result();
}

bool Step::launch(const Batch& batch, const std::function<void()>& before_update) {
  const bool first = losses_.empty();
  look_at_size(batch, first);
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
    if (micro_batches < options_.accumulation) return false;
    throw UsageError("the loader gives more batches an update than the step's accumulation of " +
                     std::to_string(options_.accumulation) + ": set both to the same number");
  }
  if (micro_batches != options_.accumulation) {
    throw UsageError("the loader gives " + std::to_string(micro_batches) +
                     " batches an update, the step expects " + std::to_string(options_.accumulation) +
                     ": set both to the same number");
  }
  if (before_update) before_update();
  update();
  return true;
}

void Step::look_at_size(const Batch& batch, bool first) {
  const std::int64_t samples = batch.inputs.defined() && batch.inputs.dim() > 0 ? batch.inputs.size(0) : 0;
  if (first) samples_ = samples;
  if (samples == samples_ || std::exchange(told_sizes_, true)) return;
  log_warning(
      "an update has a batch of {} samples and one of {}: its gradient is the mean over both, so that each "
      "sample of the smaller one counts more; with .drop_last = true the loader gives equal ones",
      samples_, samples);
}

// Does not wait for a device or read from it (unless the loss function does), so it can be captured.
// Autocast's casts end with its scope in forward(), so each replay makes them again.
at::Tensor Step::pass(const Batch& batch) {
  if (options_.parallel != nullptr) options_.parallel->before_forward();
  const at::Tensor loss = forward(batch);
  if (sum_ && batch.completes_update) {
    // In double: with many ranks a float sum would lose digits of the loss.
    at::Tensor sum = loss.detach().to(at::kDouble).reshape({1}).clone();
    for (const at::Tensor& earlier : losses_) sum.add_(earlier);
    sum_->begin(sum);
  }
  options_.clip_micro_batches > 0 ? clipped_backward(loss) : backward(loss, batch.completes_update);
  return loss.detach();
}

at::Tensor Step::forward(const Batch& batch) {
  BatchCounts counts;
  at::Tensor loss;
  if (const auto type = autocast_type(options_.precision)) {
    const AutocastGuard autocast(options_.precision, internal::device_of(*optimizer_).type());
    std::optional<CastTogether::Scope> casts;
    if (casts_) casts.emplace(*casts_, *type);
    loss = loss_(batch);
  } else {
    loss = loss_(batch);
  }
  counts.add();
  return loss;
}

void Step::backward(const at::Tensor& loss, bool last) {
  // The mean over the micro-batches, as if all samples had been in one batch.
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
      // Set aside, so that this micro-batch's gradient can be clipped by itself.
      if (!parameter.grad().defined()) continue;
      sums.emplace_back(parameter, parameter.grad());
      parameter.mutable_grad() = at::Tensor();
    }
  }
  // There are no other ranks here: the constructor refuses this option with them.
  backward(loss, true);
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> added = gradients_of(*optimizer_);
  at::Tensor over = grad_norm(added) / options_.clip_micro_batches;
  // The gradients are scaled by the loss scale here, so the limit has to be as well.
  if (options_.scaler != nullptr) over = over / options_.scaler->scale_tensor();
  divide_gradients(added, over.clamp_min(1));
  std::vector<at::Tensor> to, more;
  for (auto& [parameter, sum] : sums) {
    if (parameter.grad().defined()) {
      to.push_back(sum);
      more.push_back(parameter.grad());
    }
    parameter.mutable_grad() = sum;
  }
  add_gradients(to, more);
}

void Step::update() {
  if (!std::exchange(had_gradient_, true)) require_gradient(*optimizer_);
  at::Tensor norm;
  left_out_.reset();
  if (options_.scaler != nullptr) left_out_ = options_.scaler->unscale(*optimizer_);
  if (options_.clip_grad_norm > 0) {
    std::vector<at::Tensor> gradients = gradients_of(*optimizer_);
    norm = clip_grad_norm(gradients, options_.clip_grad_norm);
    // A gradient that is not finite makes the norm so. Finite gradients may overflow in the norm: also
    // skipped, but the scale is not lowered.
    const at::Tensor overflows = at::isfinite(norm).logical_not();
    left_out_ = (left_out_.defined() ? overflows.logical_or(left_out_.ne(0)) : overflows).to(at::kFloat);
    if (options_.scaler != nullptr) options_.scaler->agree(left_out_);
  }
  apply();
  // After the update: this changes the scale, and the gradients above were made with the old one.
  if (options_.scaler != nullptr) options_.scaler->update();

  // Only now: reading a value earlier would let the device idle between backward and update.
  std::vector<at::Tensor> scalars = std::exchange(losses_, {});
  if (sum_) scalars = {sum_->wait()};
  if (norm.defined()) scalars.push_back(norm);
  if (left_out_.defined()) scalars.push_back(left_out_);
  results_->begin(scalars);
  ++updates_;
}

StepResult Step::result() {
  const std::vector<double>& numbers = results_->wait();
  const auto count = static_cast<std::size_t>(options_.accumulation);
  StepResult result;
  result.update = updates_;
  // With several ranks one sum stands in the place of the losses.
  std::size_t next = sum_ ? 1 : count;
  // In double, and in the order of the micro-batches: a resumed run has the same bits of the loss.
  double sum = 0;
  for (std::size_t i = 0; i < next; ++i) sum += numbers[i];
  const int ranks = sum_ ? options_.parallel->group().world_size() : 1;
  result.loss = sum / (static_cast<double>(count) * ranks);
  if (options_.clip_grad_norm > 0) result.grad_norm = numbers[next++];
  result.skipped = left_out_.defined() && numbers[next] != 0;
  return result;
}

double Step::learning_rate() const { return optimizer_->param_groups().front().options().get_lr(); }

bool Step::on_device() const { return !internal::device_of(*optimizer_).is_cpu(); }

void Step::apply() {
  if (!left_out_.defined()) {
    optimizer_->step();
  } else if (fused_ != nullptr) {
    fused_->step_scaled(std::nullopt, left_out_);
  } else if (left_out_.item<float>() == 0) {
    // Without a fused kernel the host has to know, which waits for the device.
    optimizer_->step();
  }
}

}}  // namespace holdfast::v0_2
