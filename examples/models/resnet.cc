#include "examples/models/resnet.h"

#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/max_pool2d.h>

#include <array>
#include <string>

#include "examples/models/layers.h"
#include "examples/models/normalize.h"
#include "examples/models/residual_block.h"
#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 {
namespace {

struct Layout {
  int depth;
  bool bottleneck;
  std::array<int, 4> blocks;
};
// Table 1 of He et al. 2015.
constexpr std::array<Layout, 5> kLayouts{{{18, false, {2, 2, 2, 2}},
                                          {34, false, {3, 4, 6, 3}},
                                          {50, true, {3, 4, 6, 3}},
                                          {101, true, {3, 4, 23, 3}},
                                          {152, true, {3, 8, 36, 3}}}};

const Layout& layout_of(int depth) {
  for (const Layout& layout : kLayouts) {
    if (layout.depth == depth) return layout;
  }
  throw UsageError("there is no ResNet-" + std::to_string(depth) + ": choose 18, 34, 50, 101 or 152");
}

using models::conv1x1;
using models::conv3x3;

// Without a bias, as all convolutions in front of a batch norm, which would subtract it again.
torch::nn::Conv2d conv7x7(std::int64_t out) {
  return models::undrawn_conv({.in = 3, .out = out, .kernel = 7, .stride = 2, .padding = 3});
}

class BottleneckImpl final : public models::ResidualBlockImpl {
 public:
  static constexpr std::int64_t kExpansion = 4;

  // The published table has the stride in the first 1x1 convolution, torchvision in the 3x3.
  BottleneckImpl(const ResNetOptions& options, std::int64_t in, std::int64_t channels, std::int64_t stride)
      : ResidualBlockImpl(options.batch_norm),
        stride_first_(options.variant == ModelVariant::table),
        conv1_(register_module("conv1", conv1x1(in, channels, stride_first_ ? stride : 1))),
        bn1_(register_module("bn1", torch::nn::BatchNorm2d(channels))),
        conv2_(register_module("conv2", conv3x3(channels, channels, stride_first_ ? 1 : stride))),
        bn2_(register_module("bn2", torch::nn::BatchNorm2d(channels))),
        conv3_(register_module("conv3", conv1x1(channels, kExpansion * channels, 1))),
        bn3_(register_module("bn3", torch::nn::BatchNorm2d(kExpansion * channels))) {
    add_downsample(in, kExpansion * channels, stride);
  }
  Activation forward(const Activation& x) {
    at::Tensor out = relu(bn1_, conv1_(x.main));
    out = relu(bn2_, conv2_(out));
    return add_relu(bn3_, conv3_(out), x);
  }
  torch::nn::BatchNorm2d last_norm() const override { return bn3_; }

 private:
  bool stride_first_;
  torch::nn::Conv2d conv1_;
  torch::nn::BatchNorm2d bn1_;
  torch::nn::Conv2d conv2_;
  torch::nn::BatchNorm2d bn2_;
  torch::nn::Conv2d conv3_;
  torch::nn::BatchNorm2d bn3_;
};
TORCH_MODULE(Bottleneck);

}  // namespace

ResNetImpl::ResNetImpl(const ResNetOptions& options) : options_(options), in_channels_(options.width) {
  const Layout& layout = layout_of(options.depth);
  const std::int64_t width = options.width;
  if (width < 1) throw UsageError("the width of a ResNet must be at least 1, not " + std::to_string(width));
  if (options.num_classes < 1) throw UsageError("a ResNet needs at least one class");
  const bool imagenet = options.stem == Stem::imagenet;
  // With the stem of ImageNet the last stage would see one cell of a picture of 32x32.
  conv1_ = register_module("conv1", imagenet ? conv7x7(width) : conv3x3(3, width, 1));
  bn1_ = register_module("bn1", torch::nn::BatchNorm2d(width));
  layer1_ = register_module("layer1", make_layer(width, layout.blocks[0], 1));
  layer2_ = register_module("layer2", make_layer(2 * width, layout.blocks[1], 2));
  layer3_ = register_module("layer3", make_layer(4 * width, layout.blocks[2], 2));
  layer4_ = register_module("layer4", make_layer(8 * width, layout.blocks[3], 2));
  fc_ = register_module("fc", torch::nn::Linear(in_channels_, options.num_classes));
  if (options.initialize) initialize();
}

torch::nn::Sequential ResNetImpl::make_layer(std::int64_t channels, int blocks, std::int64_t stride) {
  torch::nn::Sequential layer;
  for (int i = 0; i < blocks; ++i) {
    const std::int64_t first_stride = i == 0 ? stride : 1;
    if (layout_of(options_.depth).bottleneck) {
      layer->push_back(Bottleneck(options_, in_channels_, channels, first_stride));
      in_channels_ = BottleneckImpl::kExpansion * channels;
    } else {
      layer->push_back(models::BasicBlock(options_.batch_norm, in_channels_, channels, first_stride));
      in_channels_ = models::BasicBlockImpl::kExpansion * channels;
    }
  }
  return layer;
}

at::Tensor ResNetImpl::forward(const at::Tensor& pictures) {
  models::require_layout(options_.batch_norm, pictures);
  Activation x = models::normalize(options_.batch_norm, bn1_, conv1_(pictures), {.relu = true});
  // Both paths of the first block begin behind the pool.
  if (options_.stem == Stem::imagenet) x.main = x.shortcut = at::max_pool2d(x.main, {3, 3}, {2, 2}, {1, 1});
  for (torch::nn::Sequential* layer : {&layer1_, &layer2_, &layer3_, &layer4_}) {
    x = (*layer)->forward<Activation>(x);
  }
  return fc_(at::adaptive_avg_pool2d(x.main, {1, 1}).flatten(1));
}

void ResNetImpl::initialize() {
  const at::NoGradGuard no_grad;
  const bool table = options_.variant == ModelVariant::table;
  // The order of registration decides which random numbers each layer draws.
  for (const auto& module : modules(/*include_self=*/false)) {
    if (auto* conv = module->as<torch::nn::Conv2dImpl>()) {
      table ? models::draw_as_table(*conv) : models::draw_kaiming_fan_out(conv->weight);
    }
    if (auto* norm = module->as<torch::nn::BatchNorm2dImpl>()) norm->reset_parameters();
    if (auto* linear = module->as<torch::nn::LinearImpl>()) {
      table ? models::draw_as_table(*linear, /*relu_follows=*/false) : linear->reset_parameters();
    }
  }
  // A block then begins as the identity (Goyal et al. 2017).
  if (!options_.zero_init_residual) return;
  for (const auto& module : modules(/*include_self=*/false)) {
    if (auto* block = dynamic_cast<models::ResidualBlockImpl*>(module.get()))
      block->last_norm()->weight.zero_();
  }
}

}}  // namespace holdfast::v0_2
