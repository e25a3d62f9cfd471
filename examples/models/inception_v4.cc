#include "examples/models/inception_v4.h"

#include <ATen/ops/adaptive_avg_pool2d.h>

#include <utility>
#include <vector>

#include "examples/models/inception_block.h"
#include "examples/models/normalize.h"
#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 {

using models::Branch;
using models::ConvNorm;
using models::InceptionBlock;
using models::point;
using models::Pool;
using models::same;
using models::valid;

namespace {

// The stem's three, from 147x147 to 35x35.
std::vector<Branch> mixed_3a() { return {{.pool = Pool::halve_max}, {{valid("conv", 96, 3, 2)}}}; }

std::vector<Branch> mixed_4a() {
  return {{{point("branch0.0", 64), valid("branch0.1", 96, 3)}},
          {{point("branch1.0", 64), same("branch1.1", 64, {1, 7}), same("branch1.2", 64, {7, 1}),
            valid("branch1.3", 96, 3)}}};
}

std::vector<Branch> mixed_5a() { return {{{valid("conv", 192, 3, 2)}}, {.pool = Pool::halve_max}}; }

// 35x35.
// tf_cnn_benchmarks joins the branches in another order, which is the same arithmetic. This is timm's, so
// that its weights load.
std::vector<Branch> inception_a() {
  return {{{point("branch0", 96)}},
          {{point("branch1.0", 64), same("branch1.1", 96, 3)}},
          {{point("branch2.0", 64), same("branch2.1", 96, 3), same("branch2.2", 96, 3)}},
          {.chain = {point("branch3.1", 96)}, .pool = Pool::average_inside}};
}

// To 17x17.
std::vector<Branch> reduction_a() {
  return {{{valid("branch0", 384, 3, 2)}},
          {{point("branch1.0", 192), same("branch1.1", 224, 3), valid("branch1.2", 256, 3, 2)}},
          {.pool = Pool::halve_max}};
}

// 17x17.
std::vector<Branch> inception_b() {
  return {{{point("branch0", 384)}},
          {{point("branch1.0", 192), same("branch1.1", 224, {1, 7}), same("branch1.2", 256, {7, 1})}},
          {{point("branch2.0", 192), same("branch2.1", 192, {7, 1}), same("branch2.2", 224, {1, 7}),
            same("branch2.3", 224, {7, 1}), same("branch2.4", 256, {1, 7})}},
          {.chain = {point("branch3.1", 128)}, .pool = Pool::average_inside}};
}

// To 8x8.
std::vector<Branch> reduction_b() {
  return {{{point("branch0.0", 192), valid("branch0.1", 192, 3, 2)}},
          {{point("branch1.0", 256), same("branch1.1", 256, {1, 7}), same("branch1.2", 320, {7, 1}),
            valid("branch1.3", 320, 3, 2)}},
          {.pool = Pool::halve_max}};
}

// 8x8: the last convolutions are side by side.
std::vector<Branch> inception_c() {
  return {{{point("branch0", 256)}},
          {.chain = {point("branch1_0", 384)},
           .fork = {same("branch1_1a", 256, {1, 3}), same("branch1_1b", 256, {3, 1})}},
          {.chain = {point("branch2_0", 384), same("branch2_1", 448, {3, 1}), same("branch2_2", 512, {1, 3})},
           .fork = {same("branch2_3a", 256, {1, 3}), same("branch2_3b", 256, {3, 1})}},
          {.chain = {point("branch3.1", 256)}, .pool = Pool::average_inside}};
}

}  // namespace

InceptionV4Impl::InceptionV4Impl(const InceptionV4Options& options) : options_(options) {
  if (options.num_classes < 1) throw UsageError("an Inception v4 needs at least one class");
  // tf_cnn_benchmarks keeps 0.8 of the units; timm drops none by default.
  const double dropout = options.variant == ModelVariant::table ? 0.2 : 0;
  const std::int64_t channels = add_features();
  register_module("features", features_);
  dropout_ = register_module("head_drop", models::make_dropout(options.dropout.value_or(dropout)));
  last_linear_ = register_module("last_linear", models::undrawn_linear(channels, options.num_classes));
  if (options.initialize) initialize();
}

std::int64_t InceptionV4Impl::add_features() {
  const models::InceptionNorms norms = models::inception_norms(options_.variant, options_.batch_norm);
  std::int64_t channels = 3;
  for (models::KeyedConv& conv : std::vector{valid("0", 32, 3, 2), valid("1", 32, 3), same("2", 64, 3)}) {
    conv.shape.in = std::exchange(channels, conv.shape.out);
    features_->push_back(ConvNorm(conv.shape, norms));
  }
  const auto add = [&](const std::vector<Branch>& branches, int times = 1) {
    for (int i = 0; i < times; ++i) {
      const InceptionBlock block(channels, norms, branches);
      channels = block->out_channels();
      features_->push_back(block);
    }
  };
  add(mixed_3a());
  add(mixed_4a());
  add(mixed_5a());
  add(inception_a(), 4);
  add(reduction_a());
  add(inception_b(), 7);
  add(reduction_b());
  add(inception_c(), 3);
  return channels;
}

at::Tensor InceptionV4Impl::forward(const at::Tensor& pictures) {
  models::require_pixels("Inception v4", pictures, kSmallestPixels);
  models::require_layout(options_.batch_norm, pictures);
  const at::Tensor x = at::adaptive_avg_pool2d(features_->forward(pictures), {1, 1}).flatten(1);
  return last_linear_(dropout_(x));
}

void InceptionV4Impl::initialize() {
  const at::NoGradGuard no_grad;
  const bool table = options_.variant == ModelVariant::table;
  for (const auto& module : modules(/*include_self=*/false)) {
    if (auto* conv = module->as<torch::nn::Conv2dImpl>()) {
      table ? models::draw_as_table(*conv) : conv->reset_parameters();
    }
    if (auto* norm = module->as<torch::nn::BatchNorm2dImpl>()) norm->reset_parameters();
    if (auto* linear = module->as<torch::nn::LinearImpl>()) {
      table ? models::draw_as_table(*linear, /*relu_follows=*/false) : linear->reset_parameters();
    }
  }
}

}}  // namespace holdfast::v0_2
