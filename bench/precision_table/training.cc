#include "training.h"

#include <ATen/ops/cross_entropy_loss.h>

#include "holdfast/precision/autocast.h"

namespace holdfast::bench {

Training::Training(PictureModel model, Precision precision, const std::string& layout, Inputs inputs,
                   const torch::optim::SGDOptions& options)
    : model_(std::move(model)), precision_(precision), inputs_(std::move(inputs)) {
  const at::Device device = inputs_.pictures.device();
  const auto format = layout == "nhwc" ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
  model_.module->to(device);
  {
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : model_.module->parameters()) {
      if (parameter.dim() == 4) parameter.set_data(parameter.contiguous(format));
    }
    if (inputs_.pictures.dim() == 4) inputs_.pictures = inputs_.pictures.contiguous(format);
  }
  optimizer_.emplace(model_.module->parameters(), options);
  if (needs_scaler(precision)) scaler_.emplace(device);
}

void Training::step() {
  optimizer_->zero_grad();
  {
    const AutocastGuard autocast(precision_, inputs_.pictures.device().type());
    loss_ = at::cross_entropy_loss(model_.forward(inputs_.pictures), inputs_.labels);
  }
  if (!scaler_) {
    loss_.backward();
    optimizer_->step();
    return;
  }
  scaler_->scale(loss_).backward();
  optimizer_->step_scaled(std::nullopt, scaler_->unscale(*optimizer_));
  scaler_->update();
}

double Training::loss() const { return loss_.item<double>(); }

}  // namespace holdfast::bench
