#include "training.h"

#include <ATen/ops/_foreach_zero.h>

#include "holdfast/optim/clip.h"
#include "holdfast/optim/decay_groups.h"
#include "holdfast/optim/fused_sgd.h"
#include "holdfast/optim/lamb.h"
#include "holdfast/precision/autocast.h"

namespace holdfast::bench {
namespace {

at::MemoryFormat format_of(const std::string& layout) {
  return layout == "nhwc" ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
}

}  // namespace

Training::Training(Workload work, c10::Device device, const TrainingOptions& options)
    : work_(std::move(work)), device_(device), options_(options) {
  torch::nn::Module& module = *work_.module;
  module.to(device);
  module.train();
  {
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : module.parameters()) {
      if (parameter.dim() == 4) parameter.set_data(parameter.contiguous(format_of(options.layout)));
    }
  }
  const OptimizerChoice& choice = options.optimizer;
  if (choice.name == "lamb") {
    const LambOptions lamb = LambOptions(choice.rate).weight_decay(choice.weight_decay).max_grad_norm(1);
    auto made = std::make_unique<Lamb>(decay_groups(module, lamb), lamb);
    fused_ = made.get();
    optimizer_ = std::move(made);
  } else {
    auto made = std::make_unique<FusedSgd>(
        module.parameters(),
        torch::optim::SGDOptions(choice.rate).momentum(choice.momentum).weight_decay(choice.weight_decay));
    fused_ = made.get();
    optimizer_ = std::move(made);
  }
  if (needs_scaler(options.precision)) scaler_.emplace(device);
}

void Training::give(Inputs inputs) {
  inputs_ = std::move(inputs);
  for (Input& input : inputs_) {
    if (input.value.dim() == 4) input.value = input.value.contiguous(format_of(options_.layout));
  }
}

void Training::forget_gradients(bool keep) {
  if (!keep) return optimizer_->zero_grad();
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients = gradients_of(*optimizer_);
  if (!gradients.empty()) at::_foreach_zero_(gradients);
}

void Training::pass() {
  {
    const AutocastGuard autocast(options_.precision, device_.type());
    loss_ = work_.loss(inputs_);
  }
  const at::Tensor part =
      options_.accumulation == 1 ? loss_ : loss_ / static_cast<double>(options_.accumulation);
  (scaler_ ? scaler_->scale(part) : part).backward();
  loss_ = loss_.detach();
}

void Training::update() {
  if (!options_.update) return;
  if (!scaler_) {
    optimizer_->step();
    return;
  }
  fused_->step_scaled(std::nullopt, scaler_->unscale(*optimizer_));
  scaler_->update();
}

void Training::step() {
  forget_gradients();
  for (std::int64_t i = 0; i < options_.accumulation; ++i) pass();
  update();
}

double Training::loss() const { return loss_.item<double>(); }

}  // namespace holdfast::bench
