// AlexNet in its one-tower form (Krizhevsky 2014), without local response normalisation.
//
//   holdfast::AlexNet net;
//   at::Tensor logits = net->forward(pictures);           // [N, 3, H, W] -> [N, num_classes]
//
// Names and registration order are torchvision's; the table's linear layers are classifier.0, .3, .6. Weights
// come from the global CPU generator in registration order. docs/models_and_the_published_table.md lists the
// variants. Errors: UsageError for impossible options. Threads: as torch::nn::Module.
#pragma once

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

#include "examples/models/variant.h"

namespace holdfast { inline namespace v0_2 {

struct AlexNetOptions {
  std::int64_t num_classes = 1000;
  ModelVariant variant = ModelVariant::torchvision;
  std::int64_t hidden = 4096;  // units of each hidden linear layer; they have nine tenths of the parameters
  double dropout = 0.5;
  // False leaves all parameters undefined: saves time if a resume overwrites them.
  bool initialize = true;
};

class AlexNetImpl : public torch::nn::Module {
 public:
  explicit AlexNetImpl(const AlexNetOptions& options = {});
  at::Tensor forward(const at::Tensor& pictures);

  // Draws all parameters again.
  void initialize();
  const AlexNetOptions& options() const { return options_; }

 private:
  void add_classifier();

  AlexNetOptions options_;
  torch::nn::Sequential features_, classifier_;
};
TORCH_MODULE(AlexNet);

}}  // namespace holdfast::v0_2
