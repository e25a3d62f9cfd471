// Layers as the models build them, and the draws they start from.
//
// Errors: UsageError of make_dropout(). Threads: as torch::nn::Module; the draws take numbers from the global
// CPU generator.
#pragma once

#include <torch/expanding_array.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>

namespace holdfast::inline v1::models {

struct ConvShape {
  std::int64_t in = 1;
  std::int64_t out = 1;
  torch::ExpandingArray<2> kernel = 1;  // one number, or {height, width}
  std::int64_t stride = 1;
  torch::ExpandingArray<2> padding = 0;
  bool bias = false;
};

// With parameters of the right shape whose values are undefined: Torch's own constructors draw numbers that
// most models overwrite at once.
torch::nn::Conv2d undrawn_conv(const ConvShape& shape);
torch::nn::Linear undrawn_linear(std::int64_t in, std::int64_t out);

// UsageError unless it is a probability.
torch::nn::Dropout make_dropout(double probability);

// Normal with variance 2 / fan_out: nn::init::kaiming_normal_(fan_out, relu).
void draw_kaiming_fan_out(at::Tensor weight);
// Normal, cut at two deviations and not rescaled: the result's deviation is 0.8796 of `deviation`.
void draw_truncated_normal(at::Tensor weight, double deviation);

// The starts of ModelVariant::table. Convolutions: truncated normal whose deviation after the cut is
// sqrt(1 / fan_in). Linear layers: truncated normal of sqrt(gain / in) before the cut, gain 2 where a ReLU
// follows. Biases 0.
void draw_as_table(torch::nn::Conv2dImpl& conv);
void draw_as_table(torch::nn::LinearImpl& linear, bool relu_follows);

}  // namespace holdfast::inline v1::models
