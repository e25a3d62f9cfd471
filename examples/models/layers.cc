#include "examples/models/layers.h"

#include <ATen/ops/empty.h>

#include <cmath>
#include <string>

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 { namespace models {
namespace {

// Standard deviation of a standard normal that is cut at two deviations.
// TensorFlow's initializers have the same constant, from scipy.stats.truncnorm.std(a=-2, b=2).
constexpr double kCutDeviation = 0.87962566103423978;
// The probability that a normal number lies within two deviations.
const double kInside = std::erf(2 / std::sqrt(2.0));

}  // namespace

torch::nn::Conv2d undrawn_conv(const ConvShape& shape) {
  // Made with one channel and enlarged, because the constructor would draw random numbers for nothing.
  torch::nn::Conv2d conv(torch::nn::Conv2dOptions(1, 1, 1).bias(shape.bias));
  conv->options.in_channels(shape.in)
      .out_channels(shape.out)
      .kernel_size(shape.kernel)
      .stride(shape.stride)
      .padding(shape.padding);
  const auto& [height, width] = *shape.kernel;
  conv->weight.set_data(at::empty({shape.out, shape.in, height, width}, conv->weight.options()));
  if (shape.bias) conv->bias.set_data(at::empty({shape.out}, conv->bias.options()));
  return conv;
}

torch::nn::Linear undrawn_linear(std::int64_t in, std::int64_t out) {
  torch::nn::Linear linear(1, 1);
  linear->options.in_features(in).out_features(out);
  linear->weight.set_data(at::empty({out, in}, linear->weight.options()));
  linear->bias.set_data(at::empty({out}, linear->bias.options()));
  return linear;
}

torch::nn::Dropout make_dropout(double probability) {
  if (probability >= 0 && probability <= 1) return torch::nn::Dropout(probability);
  throw UsageError("dropout is a probability between 0 and 1, not " + std::to_string(probability));
}

// The formula of nn::init::kaiming_normal_ without its checks, which take longer than small draws.
void draw_kaiming_fan_out(at::Tensor weight) {
  const std::int64_t fan_out = weight.size(0) * weight.size(2) * weight.size(3);
  weight.normal_(0.0, std::sqrt(2.0 / static_cast<double>(fan_out)));
}

// C++ has no nn::init::trunc_normal_: this applies the inverse of the distribution function to its middle
// part.
void draw_truncated_normal(at::Tensor weight, double deviation) {
  weight.uniform_(-kInside, kInside).erfinv_().mul_(deviation * std::sqrt(2.0));
  weight.clamp_(-2 * deviation, 2 * deviation);  // rounding may exceed the ends
}

void draw_as_table(torch::nn::Conv2dImpl& conv) {
  const double fan_in = static_cast<double>(conv.weight.numel() / conv.weight.size(0));
  // As TensorFlow's variance_scaling: the deviation after cutting is that of the formula.
  draw_truncated_normal(conv.weight, std::sqrt(1 / fan_in) / kCutDeviation);
  if (conv.bias.defined()) conv.bias.zero_();
}

void draw_as_table(torch::nn::LinearImpl& linear, bool relu_follows) {
  // tf_cnn_benchmarks names the deviation before the cut for its linear layers, so nothing is divided by
  // kCutDeviation here.
  const double gain = relu_follows ? 2 : 1;
  draw_truncated_normal(linear.weight, std::sqrt(gain / static_cast<double>(linear.weight.size(1))));
  linear.bias.zero_();
}

}}}  // namespace holdfast::v0_2::models
