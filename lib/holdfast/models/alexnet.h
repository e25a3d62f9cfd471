// AlexNet in its one-tower form (Krizhevsky 2014), without local response normalisation.
//
//   holdfast::AlexNet net;
//   at::Tensor logits = net->forward(pictures);           // [N, 3, H, W] -> [N, num_classes]
//
// The variants differ in their layers:
//   torchvision  for 224 pixels: the first convolution pads by 2, the fourth has 256 channels, dropout stands
//                before each hidden linear layer; 61,100,840 parameters for 1000 classes. Pictures have at
//                least 63 pixels a side. Torch's default start.
//   table        for 227 pixels: no padding, 384 channels, dropout after each hidden layer's ReLU; 61,842,345
//                parameters for 1001 classes. At least 67 pixels a side. Truncated normals
//                (internal/layers.h), biases 0.
// Parameter names and registration order are torchvision's; the table's linear layers are classifier.0, .3,
// .6. Drawn from the global CPU generator, in registration order. Errors: UsageError for options that cannot
// be. Threads: as torch::nn::Module.
#pragma once

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

#include "holdfast/models/variant.h"

namespace holdfast::inline v1 {

struct AlexNetOptions {
  std::int64_t num_classes = 1000;
  ModelVariant variant = ModelVariant::torchvision;
  std::int64_t hidden = 4096;  // units of each hidden linear layer: nine tenths of the parameters
  double dropout = 0.5;
  bool initialize = true;  // false leaves every parameter undefined, for a resume that overwrites them
};

class AlexNetImpl : public torch::nn::Module {
 public:
  explicit AlexNetImpl(const AlexNetOptions& options = {});
  at::Tensor forward(const at::Tensor& pictures);

  // (Re)draws every parameter.
  void initialize();
  const AlexNetOptions& options() const { return options_; }

 private:
  void add_classifier();

  AlexNetOptions options_;
  torch::nn::Sequential features_, classifier_;
};
TORCH_MODULE(AlexNet);

}  // namespace holdfast::inline v1
