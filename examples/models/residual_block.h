// The parts of residual networks: ResNet's blocks, and the backbone of SSD300.
//
// Errors: those of normalize.h. Threads: as torch::nn::Module.
#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

#include "examples/models/normalize.h"

namespace holdfast { inline namespace v0_2 { namespace models {

torch::nn::Conv2d conv3x3(std::int64_t in, std::int64_t out, std::int64_t stride);
torch::nn::Conv2d conv1x1(std::int64_t in, std::int64_t out, std::int64_t stride);

// The common part of both kinds of block: named layers in torchvision's order, the shortcut last.
class ResidualBlockImpl : public torch::nn::Module {
 public:
  virtual torch::nn::BatchNorm2d last_norm() const = 0;

 protected:
  explicit ResidualBlockImpl(BatchNormKind kind) : kind_(kind) {}

  void add_downsample(std::int64_t in, std::int64_t out, std::int64_t stride);
  at::Tensor relu(torch::nn::BatchNorm2d& norm, const at::Tensor& x) const;
  // The end of a block. `input`: the input of the block.
  Activation add_relu(torch::nn::BatchNorm2d& norm, const at::Tensor& x, const Activation& input);

 private:
  BatchNormKind kind_;
  torch::nn::Conv2d down_conv_{nullptr};
  torch::nn::BatchNorm2d down_norm_{nullptr};
};

// Two 3x3 convolutions; the first has the stride.
class BasicBlockImpl final : public ResidualBlockImpl {
 public:
  static constexpr std::int64_t kExpansion = 1;

  BasicBlockImpl(BatchNormKind kind, std::int64_t in, std::int64_t channels, std::int64_t stride);
  Activation forward(const Activation& x);
  torch::nn::BatchNorm2d last_norm() const override { return bn2_; }

 private:
  torch::nn::Conv2d conv1_;
  torch::nn::BatchNorm2d bn1_;
  torch::nn::Conv2d conv2_;
  torch::nn::BatchNorm2d bn2_;
};
TORCH_MODULE(BasicBlock);

}}}  // namespace holdfast::v0_2::models
