// ResNet (He et al. 2015) with torchvision's parameter names and registration order. Bottleneck blocks are
// v1.5 (the 3x3 convolution has the stride), in the variant `table` v1 (the first 1x1 convolution has it).
//
//   using namespace holdfast;
//   ResNet net(ResNetOptions{.depth = 50, .num_classes = 10, .stem = Stem::cifar});
//   at::Tensor logits = net->forward(pictures);           // [N, 3, H, W] -> [N, num_classes]
//
// 25,557,032 parameters for depth 50 and 1000 classes. docs/models_and_the_published_table.md has the initial
// weights, which come from the global CPU generator in registration order. Errors: UsageError for an unknown
// depth, a width below 1, and what the batch norms cannot do, such as a layout other than channels_last.
// Threads: as torch::nn::Module.
#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

#include "examples/models/batch_norm.h"
#include "examples/models/variant.h"

namespace holdfast { inline namespace v0_2 {

enum class Stem {
  imagenet,  // 7x7 convolution with stride 2 and a max pool: the first block sees a quarter of the side
  cifar,     // 3x3 convolution with stride 1, no pool: for pictures of 32x32; 16 times the work
};

struct ResNetOptions {
  int depth = 50;  // 18, 34 (basic blocks), 50, 101, 152 (bottleneck blocks)
  std::int64_t num_classes = 1000;
  Stem stem = Stem::imagenet;
  // Channels of the stem; all others scale with it. The cost grows with its square.
  std::int64_t width = 64;
  ModelVariant variant = ModelVariant::torchvision;
  BatchNormKind batch_norm = BatchNormKind::aten;
  // The last batch norm of each block starts at 0, so that blocks start as the identity.
  bool zero_init_residual = false;
  // False leaves convolution weights undefined: saves most of the construction's time if a resume
  // overwrites them.
  bool initialize = true;
};

class ResNetImpl : public torch::nn::Module {
 public:
  explicit ResNetImpl(const ResNetOptions& options = {});
  at::Tensor forward(const at::Tensor& pictures);

  // Draws all parameters again and resets the running statistics.
  void initialize();
  const ResNetOptions& options() const { return options_; }

 private:
  torch::nn::Sequential make_layer(std::int64_t channels, int blocks, std::int64_t stride);

  ResNetOptions options_;
  std::int64_t in_channels_;
  torch::nn::Conv2d conv1_{nullptr};
  torch::nn::BatchNorm2d bn1_{nullptr};
  torch::nn::Sequential layer1_{nullptr}, layer2_{nullptr}, layer3_{nullptr}, layer4_{nullptr};
  torch::nn::Linear fc_{nullptr};
};
TORCH_MODULE(ResNet);

}}  // namespace holdfast::v0_2
