// Inception v4 (Szegedy et al. 2016) with timm's parameter names and registration order.
//
//   holdfast::InceptionV4 net;
//   at::Tensor logits = net->forward(pictures);           // [N, 3, H, W] -> [N, num_classes]
//
// Pictures have at least 75 pixels a side. docs/models_and_the_published_table.md lists the variants. Weights
// come from the global CPU generator in registration order. Errors: UsageError for impossible options, small
// pictures, and what the batch norms cannot do (batch_norm.h). Threads: as torch::nn::Module.
#pragma once

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <optional>

#include "examples/models/batch_norm.h"
#include "examples/models/variant.h"

namespace holdfast { inline namespace v0_2 {

struct InceptionV4Options {
  std::int64_t num_classes = 1000;
  ModelVariant variant = ModelVariant::torchvision;
  std::optional<double> dropout = {};  // empty: the variant's default
  BatchNormKind batch_norm = BatchNormKind::aten;
  bool initialize = true;  // false leaves weights undefined: saves time if a resume overwrites them
};

class InceptionV4Impl : public torch::nn::Module {
 public:
  static constexpr std::int64_t kPixels = 299;  // side of the pictures that it was designed for
  static constexpr std::int64_t kSmallestPixels = 75;

  explicit InceptionV4Impl(const InceptionV4Options& options = {});
  at::Tensor forward(const at::Tensor& pictures);

  // Draws all parameters again and resets the running statistics.
  void initialize();
  const InceptionV4Options& options() const { return options_; }

 private:
  std::int64_t add_features();  // returns the number of their channels

  InceptionV4Options options_;
  torch::nn::Sequential features_;
  torch::nn::Dropout dropout_{nullptr};
  torch::nn::Linear last_linear_{nullptr};
};
TORCH_MODULE(InceptionV4);

}}  // namespace holdfast::v0_2
