#include "holdfast/models/vgg.h"

#include <ATen/ops/adaptive_avg_pool2d.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/pooling.h>

#include <string>

#include "holdfast/base/error.h"
#include "holdfast/models/internal/layers.h"

namespace holdfast::inline v1 {
namespace {

// Channels of the convolutions, each followed by a ReLU; 0 is a pool that halves the picture.
constexpr int kLayers[] = {64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0};
constexpr std::int64_t kPooled = 7;
constexpr std::int64_t kHidden = 4096;

torch::nn::ReLU in_place_relu() { return torch::nn::ReLU(torch::nn::ReLUOptions(true)); }

}  // namespace

Vgg16Impl::Vgg16Impl(const Vgg16Options& options) : options_(options) {
  if (options.num_classes < 1) throw UsageError("a VGG-16 needs at least one class");
  if (!(options.dropout >= 0 && options.dropout <= 1)) {
    throw UsageError("dropout is a probability between 0 and 1, not " + std::to_string(options.dropout));
  }
  std::int64_t channels = 3;
  for (const int layer : kLayers) {
    if (layer == 0) {
      features_->push_back(torch::nn::MaxPool2d(torch::nn::MaxPool2dOptions(2).stride(2)));
      continue;
    }
    features_->push_back(
        models::undrawn_conv({.in = channels, .out = layer, .kernel = 3, .padding = 1, .bias = true}));
    features_->push_back(in_place_relu());
    channels = layer;
  }
  std::int64_t inputs = channels * kPooled * kPooled;
  for (int hidden = 0; hidden < 2; ++hidden) {
    classifier_->push_back(models::undrawn_linear(inputs, kHidden));
    classifier_->push_back(in_place_relu());
    classifier_->push_back(torch::nn::Dropout(options.dropout));
    inputs = kHidden;
  }
  classifier_->push_back(models::undrawn_linear(inputs, options.num_classes));
  register_module("features", features_);
  register_module("classifier", classifier_);
  if (options.initialize) initialize();
}

at::Tensor Vgg16Impl::forward(const at::Tensor& pictures) {
  const at::Tensor x = features_->forward(pictures);
  return classifier_->forward(at::adaptive_avg_pool2d(x, {kPooled, kPooled}).flatten(1));
}

void Vgg16Impl::initialize() {
  const at::NoGradGuard no_grad;
  const bool table = options_.variant == ModelVariant::table;
  for (const auto& module : modules(/*include_self=*/false)) {
    if (auto* conv = module->as<torch::nn::Conv2dImpl>()) {
      if (table) {
        models::draw_as_table(*conv);
      } else {
        models::draw_kaiming_fan_out(conv->weight);
        conv->bias.zero_();
      }
    }
    if (auto* linear = module->as<torch::nn::LinearImpl>()) {
      if (table) {
        models::draw_as_table(*linear, linear->options.out_features() == kHidden);
      } else {
        linear->weight.normal_(0.0, 0.01);
        linear->bias.zero_();
      }
    }
  }
}

}  // namespace holdfast::inline v1
