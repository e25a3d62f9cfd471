// Layers of the models, and how their weights are drawn.
//
// Errors: make_dropout() throws UsageError. Threads: as torch::nn::Module; draws use the global CPU
// generator.
#pragma once

#include <torch/expanding_array.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>

namespace holdfast { inline namespace v0_2 { namespace models {

struct ConvShape {
  std::int64_t in = 1;
  std::int64_t out = 1;
  torch::ExpandingArray<2> kernel = 1;  // one number, or {height, width}
  std::int64_t stride = 1;
  torch::ExpandingArray<2> padding = 0;
  bool bias = false;
};

// Layers with undefined parameters of the right shape. torch's constructors draw numbers that most models
// overwrite.
torch::nn::Conv2d undrawn_conv(const ConvShape& shape);
torch::nn::Linear undrawn_linear(std::int64_t in, std::int64_t out);

// UsageError unless `probability` is in [0, 1].
torch::nn::Dropout make_dropout(double probability);

// Normal with variance 2 / fan_out: nn::init::kaiming_normal_(fan_out, relu).
void draw_kaiming_fan_out(at::Tensor weight);
// Normal, cut at two deviations and not rescaled: the deviation of the result is 0.8796 * `deviation`.
void draw_truncated_normal(at::Tensor weight, double deviation);

// Initial weights of ModelVariant::table. Convolutions: truncated normal with a deviation of sqrt(1 / fan_in)
// after the cut. Linear layers: truncated normal of sqrt(gain / in) before the cut, with gain 2 before a
// ReLU, else 1. Biases 0.
void draw_as_table(torch::nn::Conv2dImpl& conv);
void draw_as_table(torch::nn::LinearImpl& linear, bool relu_follows);

}}}  // namespace holdfast::v0_2::models
