#include "examples/models/residual_block.h"

#include <torch/nn/modules/container/sequential.h>

#include "examples/models/layers.h"

namespace holdfast { inline namespace v0_2 { namespace models {

torch::nn::Conv2d conv3x3(std::int64_t in, std::int64_t out, std::int64_t stride) {
  return undrawn_conv({.in = in, .out = out, .kernel = 3, .stride = stride, .padding = 1});
}
torch::nn::Conv2d conv1x1(std::int64_t in, std::int64_t out, std::int64_t stride) {
  return undrawn_conv({.in = in, .out = out, .kernel = 1, .stride = stride, .padding = 0});
}

void ResidualBlockImpl::add_downsample(std::int64_t in, std::int64_t out, std::int64_t stride) {
  // Option B of He et al. (2015): a projection only where the shape changes, and the identity elsewhere.
  if (stride == 1 && in == out) return;
  down_conv_ = conv1x1(in, out, stride);
  down_norm_ = torch::nn::BatchNorm2d(out);
  register_module("downsample", torch::nn::Sequential(down_conv_, down_norm_));
}

at::Tensor ResidualBlockImpl::relu(torch::nn::BatchNorm2d& norm, const at::Tensor& x) const {
  return normalize(kind_, norm, x, {.relu = true}).main;
}

Activation ResidualBlockImpl::add_relu(torch::nn::BatchNorm2d& norm, const at::Tensor& x,
                                       const Activation& input) {
  // A handle of its own: its gradient then arrives apart from that of the main path. The norm's backward
  // kernel adds the two while it reads them.
  at::Tensor shortcut = input.shortcut;
  if (down_conv_) shortcut = normalize(kind_, down_norm_, down_conv_(shortcut), {}).main;
  return normalize(kind_, norm, x, {.add = shortcut, .relu = true});
}

BasicBlockImpl::BasicBlockImpl(BatchNormKind kind, std::int64_t in, std::int64_t channels,
                               std::int64_t stride)
    : ResidualBlockImpl(kind),
      conv1_(register_module("conv1", conv3x3(in, channels, stride))),
      bn1_(register_module("bn1", torch::nn::BatchNorm2d(channels))),
      conv2_(register_module("conv2", conv3x3(channels, channels, 1))),
      bn2_(register_module("bn2", torch::nn::BatchNorm2d(channels))) {
  add_downsample(in, channels, stride);
}

Activation BasicBlockImpl::forward(const Activation& x) {
  const at::Tensor out = relu(bn1_, conv1_(x.main));
  return add_relu(bn2_, conv2_(out), x);
}

}}}  // namespace holdfast::v0_2::models
