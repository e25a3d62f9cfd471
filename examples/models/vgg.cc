#include "examples/models/vgg.h"

#include <ATen/ops/adaptive_avg_pool2d.h>

#include "examples/models/layers.h"
#include "examples/models/vgg_features.h"
#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr std::int64_t kLastChannels = 512;  // of the last feature map
constexpr std::int64_t kLastSide = 7;

}  // namespace

Vgg16Impl::Vgg16Impl(const Vgg16Options& options) : options_(options), features_(models::vgg16_features()) {
  if (options.num_classes < 1) throw UsageError("a VGG-16 needs at least one class");
  if (options.hidden < 1) throw UsageError("a VGG-16 needs at least one hidden unit a layer");
  std::int64_t inputs = kLastChannels * kLastSide * kLastSide;
  for (int hidden = 0; hidden < 2; ++hidden) {
    classifier_->push_back(models::undrawn_linear(inputs, options.hidden));
    classifier_->push_back(models::in_place_relu());
    classifier_->push_back(models::make_dropout(options.dropout));
    inputs = options.hidden;
  }
  classifier_->push_back(models::undrawn_linear(inputs, options.num_classes));
  register_module("features", features_);
  register_module("classifier", classifier_);
  if (options.initialize) initialize();
}

at::Tensor Vgg16Impl::forward(const at::Tensor& pictures) {
  const at::Tensor x = features_->forward(pictures);
  // Adaptive, so that pictures of other sizes than 224 fit the linear layers, too.
  return classifier_->forward(at::adaptive_avg_pool2d(x, {kLastSide, kLastSide}).flatten(1));
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
        // No ReLU follows the last layer, so it gets the smaller deviation.
        models::draw_as_table(*linear, linear != classifier_->children().back().get());
      } else {
        // The values of torchvision.
        linear->weight.normal_(0.0, 0.01);
        linear->bias.zero_();
      }
    }
  }
}

}}  // namespace holdfast::v0_2
