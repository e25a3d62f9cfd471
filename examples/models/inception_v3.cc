#include "examples/models/inception_v3.h"

#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/avg_pool2d.h>
#include <torch/nn/modules/batchnorm.h>

#include <string>
#include <utility>
#include <vector>

#include "examples/models/inception_block.h"
#include "examples/models/normalize.h"
#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 {

using models::Branch;
using models::ConvNorm;
using models::InceptionBlock;
using models::InceptionNorms;
using models::point;
using models::Pool;
using models::same;
using models::valid;

namespace {

constexpr std::int64_t kSideChannels = 768;  // of the auxiliary head, as in torchvision's InceptionAux

// Blocks A to E, in the order of torchvision's letters. 35x35:
std::vector<Branch> block_a(std::int64_t pooled_channels, Pool pool) {
  return {{{point("branch1x1", 64)}},
          {{point("branch5x5_1", 48), same("branch5x5_2", 64, 5)}},
          {{point("branch3x3dbl_1", 64), same("branch3x3dbl_2", 96, 3), same("branch3x3dbl_3", 96, 3)}},
          {.chain = {point("branch_pool", pooled_channels)}, .pool = pool}};
}

// From 35x35 to 17x17.
std::vector<Branch> block_b() {
  return {{{valid("branch3x3", 384, 3, 2)}},
          {{point("branch3x3dbl_1", 64), same("branch3x3dbl_2", 96, 3), valid("branch3x3dbl_3", 96, 3, 2)}},
          {.pool = Pool::halve_max}};
}

// 17x17: kernels of 7x7 as rows and columns.
std::vector<Branch> block_c(std::int64_t inner, Pool pool) {
  return {
      {{point("branch1x1", 192)}},
      {{point("branch7x7_1", inner), same("branch7x7_2", inner, {1, 7}), same("branch7x7_3", 192, {7, 1})}},
      {{point("branch7x7dbl_1", inner), same("branch7x7dbl_2", inner, {7, 1}),
        same("branch7x7dbl_3", inner, {1, 7}), same("branch7x7dbl_4", inner, {7, 1}),
        same("branch7x7dbl_5", 192, {1, 7})}},
      {.chain = {point("branch_pool", 192)}, .pool = pool}};
}

// From 17x17 to 8x8.
std::vector<Branch> block_d() {
  return {{{point("branch3x3_1", 192), valid("branch3x3_2", 320, 3, 2)}},
          {{point("branch7x7x3_1", 192), same("branch7x7x3_2", 192, {1, 7}),
            same("branch7x7x3_3", 192, {7, 1}), valid("branch7x7x3_4", 192, 3, 2)}},
          {.pool = Pool::halve_max}};
}

// 8x8: the last convolutions are side by side.
std::vector<Branch> block_e(Pool pool) {
  return {{{point("branch1x1", 320)}},
          {.chain = {point("branch3x3_1", 384)},
           .fork = {same("branch3x3_2a", 384, {1, 3}), same("branch3x3_2b", 384, {3, 1})}},
          {.chain = {point("branch3x3dbl_1", 448), same("branch3x3dbl_2", 384, 3)},
           .fork = {same("branch3x3dbl_3a", 384, {1, 3}), same("branch3x3dbl_3b", 384, {3, 1})}},
          {.chain = {point("branch_pool", 192)}, .pool = pool}};
}

}  // namespace

struct InceptionV3Impl::Layers {
  std::vector<ConvNorm> stem;
  std::vector<InceptionBlock> until_17x17;
  std::vector<ConvNorm> auxiliary;
  std::vector<InceptionBlock> from_17x17;
};

InceptionV3Impl::InceptionV3Impl(const InceptionV3Options& options)
    : options_(options), layers_(std::make_unique<Layers>()) {
  if (options.num_classes < 1) throw UsageError("an Inception v3 needs at least one class");
  if (options.auxiliary && options.variant == ModelVariant::table) {
    throw UsageError(
        "the table's Inception v3 has no auxiliary head: choose the variant torchvision for one");
  }
  add_layers();
  if (options.initialize) initialize();
}

InceptionV3Impl::~InceptionV3Impl() = default;

void InceptionV3Impl::add_layers() {
  const bool table = options_.variant == ModelVariant::table;
  const InceptionNorms norms = models::inception_norms(options_.variant, options_.batch_norm);
  std::int64_t channels = 3;
  for (models::KeyedConv& conv : std::vector{valid("Conv2d_1a_3x3", 32, 3, 2), valid("Conv2d_2a_3x3", 32, 3),
                                             same("Conv2d_2b_3x3", 64, 3), point("Conv2d_3b_1x1", 80),
                                             valid("Conv2d_4a_3x3", 192, 3)}) {
    conv.shape.in = std::exchange(channels, conv.shape.out);
    layers_->stem.push_back(register_module(conv.key, ConvNorm(conv.shape, norms)));
  }
  const auto add = [&](std::vector<InceptionBlock>& to, const char* key,
                       const std::vector<Branch>& branches) {
    to.push_back(register_module(key, InceptionBlock(channels, norms, branches)));
    channels = to.back()->out_channels();
  };
  const Pool average = table ? Pool::average_inside : Pool::average;
  add(layers_->until_17x17, "Mixed_5b", block_a(32, average));
  add(layers_->until_17x17, "Mixed_5c", block_a(64, average));
  add(layers_->until_17x17, "Mixed_5d", block_a(64, average));
  add(layers_->until_17x17, "Mixed_6a", block_b());
  add(layers_->until_17x17, "Mixed_6b", block_c(128, average));
  add(layers_->until_17x17, "Mixed_6c", block_c(160, average));
  add(layers_->until_17x17, "Mixed_6d", block_c(160, average));
  add(layers_->until_17x17, "Mixed_6e", block_c(192, average));
  if (options_.auxiliary) {
    const auto head = register_module("AuxLogits", std::make_shared<torch::nn::Module>());
    layers_->auxiliary = {
        head->register_module("conv0", ConvNorm(models::ConvShape{.in = channels, .out = 128}, norms)),
        head->register_module(
            "conv1", ConvNorm(models::ConvShape{.in = 128, .out = kSideChannels, .kernel = 5}, norms))};
    auxiliary_fc_ = head->register_module("fc", models::undrawn_linear(kSideChannels, options_.num_classes));
  }
  add(layers_->from_17x17, "Mixed_7a", block_d());
  add(layers_->from_17x17, "Mixed_7b", block_e(average));
  add(layers_->from_17x17, "Mixed_7c", block_e(table ? Pool::max : average));
  dropout_ = register_module("dropout", models::make_dropout(options_.dropout.value_or(table ? 0 : 0.5)));
  fc_ = register_module("fc", models::undrawn_linear(channels, options_.num_classes));
}

at::Tensor InceptionV3Impl::until_17x17(const at::Tensor& pictures) {
  models::require_layout(options_.batch_norm, pictures);
  at::Tensor x = pictures;
  for (std::size_t i = 0; i < layers_->stem.size(); ++i) {
    // The pools lie behind the third and the fifth convolution.
    if (i == 3) x = models::pooled(Pool::halve_max, x);
    x = layers_->stem[i](x);
  }
  x = models::pooled(Pool::halve_max, x);
  for (InceptionBlock& block : layers_->until_17x17) x = block(x);
  return x;
}

at::Tensor InceptionV3Impl::from_17x17(at::Tensor x) {
  for (InceptionBlock& block : layers_->from_17x17) x = block(x);
  return fc_(dropout_(at::adaptive_avg_pool2d(x, {1, 1})).flatten(1));
}

at::Tensor InceptionV3Impl::forward(const at::Tensor& pictures) {
  models::require_pixels("Inception v3", pictures, kSmallestPixels);
  return from_17x17(until_17x17(pictures));
}

InceptionV3Impl::Outputs InceptionV3Impl::forward_both(const at::Tensor& pictures) {
  if (!options_.auxiliary) throw UsageError("this Inception v3 was made without its auxiliary head");
  models::require_pixels("Inception v3 with its auxiliary head", pictures, kSmallestPixelsOfBoth);
  const at::Tensor shared = until_17x17(pictures);
  // As torchvision: the head sees 5x5 cells.
  at::Tensor side = at::avg_pool2d(shared, {5, 5}, {3, 3});
  for (ConvNorm& conv : layers_->auxiliary) side = conv(side);
  side = auxiliary_fc_(at::adaptive_avg_pool2d(side, {1, 1}).flatten(1));
  return {.logits = from_17x17(shared), .auxiliary = side};
}

void InceptionV3Impl::initialize() {
  const at::NoGradGuard no_grad;
  const bool table = options_.variant == ModelVariant::table;
  for (const auto& module : modules(/*include_self=*/false)) {
    if (auto* conv = module->as<torch::nn::Conv2dImpl>()) {
      // Deviations of the reference implementations.
      // torchvision cuts its normals at an absolute 2, which is 20 deviations: a plain normal. It asks for
      // 0.01 in one convolution of the auxiliary head, where nothing reads it.
      table ? models::draw_as_table(*conv) : void(conv->weight.normal_(0, 0.1));
    }
    if (auto* norm = module->as<torch::nn::BatchNorm2dImpl>()) norm->reset_parameters();
    if (auto* linear = module->as<torch::nn::LinearImpl>()) {
      if (table) {
        models::draw_as_table(*linear, /*relu_follows=*/false);
      } else {
        linear->reset_parameters();
        // torchvision draws the last layer of the auxiliary head with a hundredth of the deviation.
        linear->weight.normal_(0, linear == fc_.ptr().get() ? 0.1 : 0.001);
      }
    }
  }
}

}}  // namespace holdfast::v0_2
