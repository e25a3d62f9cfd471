#include "examples/models/alexnet.h"

#include <ATen/ops/adaptive_avg_pool2d.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/pooling.h>

#include "examples/models/layers.h"
#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr std::int64_t kPooled = 6;  // cells a side for pictures of 224, which the linear layers expect

// The ReLU works in place, which is safe behind a convolution: its backward pass reads inputs and weights,
// not its output.
void add_conv(torch::nn::Sequential& to, models::ConvShape shape) {
  shape.bias = true;
  to->push_back(models::undrawn_conv(shape));
  to->push_back(torch::nn::ReLU(torch::nn::ReLUOptions(true)));
}

void add_pool(torch::nn::Sequential& to) {
  to->push_back(torch::nn::MaxPool2d(torch::nn::MaxPool2dOptions(3).stride(2)));
}

}  // namespace

AlexNetImpl::AlexNetImpl(const AlexNetOptions& options) : options_(options) {
  if (options.num_classes < 1) throw UsageError("an AlexNet needs at least one class");
  if (options.hidden < 1) throw UsageError("an AlexNet needs at least one hidden unit a layer");
  const bool table = options.variant == ModelVariant::table;
  // The variants differ in the channels of the fourth convolution.
  const std::int64_t fourth = table ? 384 : 256;
  add_conv(features_, {.in = 3, .out = 64, .kernel = 11, .stride = 4, .padding = table ? 0 : 2});
  add_pool(features_);
  add_conv(features_, {.in = 64, .out = 192, .kernel = 5, .padding = 2});
  add_pool(features_);
  add_conv(features_, {.in = 192, .out = 384, .kernel = 3, .padding = 1});
  add_conv(features_, {.in = 384, .out = fourth, .kernel = 3, .padding = 1});
  add_conv(features_, {.in = fourth, .out = 256, .kernel = 3, .padding = 1});
  add_pool(features_);
  add_classifier();
  register_module("features", features_);
  register_module("classifier", classifier_);
  if (options.initialize) initialize();
}

void AlexNetImpl::add_classifier() {
  const bool table = options_.variant == ModelVariant::table;
  std::int64_t inputs = 256 * kPooled * kPooled;
  for (int hidden = 0; hidden < 2; ++hidden) {
    // torchvision drops before a layer, the table's program behind it.
    if (!table) classifier_->push_back(models::make_dropout(options_.dropout));
    classifier_->push_back(models::undrawn_linear(inputs, options_.hidden));
    classifier_->push_back(torch::nn::ReLU(torch::nn::ReLUOptions(true)));
    if (table) classifier_->push_back(models::make_dropout(options_.dropout));
    inputs = options_.hidden;
  }
  classifier_->push_back(models::undrawn_linear(inputs, options_.num_classes));
}

at::Tensor AlexNetImpl::forward(const at::Tensor& pictures) {
  const at::Tensor x = features_->forward(pictures);
  return classifier_->forward(at::adaptive_avg_pool2d(x, {kPooled, kPooled}).flatten(1));
}

void AlexNetImpl::initialize() {
  const at::NoGradGuard no_grad;
  const bool table = options_.variant == ModelVariant::table;
  for (const auto& module : modules(/*include_self=*/false)) {
    if (auto* conv = module->as<torch::nn::Conv2dImpl>()) {
      table ? models::draw_as_table(*conv) : conv->reset_parameters();
    }
    if (auto* linear = module->as<torch::nn::LinearImpl>()) {
      // No ReLU follows the last layer, so it gets the smaller deviation.
      table ? models::draw_as_table(*linear, linear != classifier_->children().back().get())
            : linear->reset_parameters();
    }
  }
}

}}  // namespace holdfast::v0_2
