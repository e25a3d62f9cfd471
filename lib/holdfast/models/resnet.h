// ResNet (He et al. 2015) with torchvision's parameter names and registration order. Its bottleneck blocks
// are v1.5 (the stride sits in the 3x3 convolution), or v1 in the variant `table` (in the first 1x1
// convolution).
//
//   using namespace holdfast;
//   ResNet net(ResNetOptions{.depth = 50, .num_classes = 10, .stem = Stem::cifar});
//   at::Tensor logits = net->forward(pictures);           // [N, 3, H, W] -> [N, num_classes]
//
// 25,557,032 parameters for depth 50, 1000 classes and the imagenet stem; 23,528,522 for 10 classes.
// Convolutions: normal with variance 2 / (fan_out); batch norms: weight 1, bias 0; fc: Linear's default. In
// the variant `table`: truncated normals (internal/layers.h). Drawn from the global CPU generator, in
// registration order.
// Errors: UsageError for an unknown depth or a width below 1; of forward(), for what the chosen batch norms
// cannot do (batch_norm.h), a layout other than channels_last above all. Threads: as torch::nn::Module.
#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

#include "holdfast/models/batch_norm.h"
#include "holdfast/models/variant.h"

namespace holdfast::inline v1 {

enum class Stem {
  imagenet,  // 7x7 convolution with stride 2, then a max pool: the input shrinks by 4 before the first block
  cifar,     // 3x3 convolution with stride 1, no pool: for pictures of 32x32; 16 times the work
};

struct ResNetOptions {
  int depth = 50;  // 18, 34 (basic blocks), 50, 101, 152 (bottleneck blocks)
  std::int64_t num_classes = 1000;
  Stem stem = Stem::imagenet;
  std::int64_t width = 64;  // channels of the stem; all others scale with it. Cost grows with its square.
  ModelVariant variant = ModelVariant::torchvision;
  BatchNormKind batch_norm = BatchNormKind::aten;
  bool zero_init_residual =
      false;               // last batch norm of each block starts at 0, so that blocks start as identity
  bool initialize = true;  // false leaves convolution weights undefined, for a resume that overwrites
                           // them anyway: saves most of the construction's time
};

class ResNetImpl : public torch::nn::Module {
 public:
  explicit ResNetImpl(const ResNetOptions& options = {});
  at::Tensor forward(const at::Tensor& pictures);

  // (Re)draws every parameter and resets the running statistics.
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

}  // namespace holdfast::inline v1
