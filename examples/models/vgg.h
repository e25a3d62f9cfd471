// VGG-16 (Simonyan and Zisserman 2014, configuration D, without batch norm) with torchvision's parameter
// names and registration order. 138,357,544 parameters for 1000 classes.
//
//   holdfast::Vgg16 net;
//   at::Tensor logits = net->forward(pictures);           // [N, 3, H, W] -> [N, num_classes]
//
// Pictures have at least 32 pixels a side. Both variants have the same layers and other initial weights
// (docs/models_and_the_published_table.md), which come from the global CPU generator in registration order.
// Errors: UsageError for impossible options. Threads: as torch::nn::Module.
#pragma once

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

#include "examples/models/variant.h"

namespace holdfast { inline namespace v0_2 {

struct Vgg16Options {
  std::int64_t num_classes = 1000;
  ModelVariant variant = ModelVariant::torchvision;
  std::int64_t hidden = 4096;  // units of each hidden linear layer; they have nine tenths of the parameters
  double dropout = 0.5;        // after the ReLU of both hidden linear layers
  bool initialize = true;      // false leaves all parameters undefined: saves time if a resume overwrites
                               // them
};

class Vgg16Impl : public torch::nn::Module {
 public:
  explicit Vgg16Impl(const Vgg16Options& options = {});
  at::Tensor forward(const at::Tensor& pictures);

  // Draws all parameters again.
  void initialize();
  const Vgg16Options& options() const { return options_; }

 private:
  Vgg16Options options_;
  torch::nn::Sequential features_, classifier_;
};
TORCH_MODULE(Vgg16);

}}  // namespace holdfast::v0_2
