// Inception v3 (Szegedy et al. 2015) with torchvision's parameter names and registration order.
//
//   holdfast::InceptionV3 net(holdfast::InceptionV3Options{.auxiliary = true});
//   at::Tensor logits = net->forward(pictures);           // [N, 3, H, W] -> [N, num_classes]
//   auto [main, side] = net->forward_both(pictures);      // with the auxiliary head
//   loss = cross_entropy(main, labels) + holdfast::kAuxiliaryWeight * cross_entropy(side, labels);
//
// Pictures have at least 75 pixels a side; for forward_both() 299. docs/models_and_the_published_table.md
// lists the variants. Weights come from the global CPU generator in registration order. Errors: UsageError
// for impossible options, small pictures, and what the batch norms cannot do (batch_norm.h). Threads: as
// torch::nn::Module.
#pragma once

#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "examples/models/batch_norm.h"
#include "examples/models/variant.h"

namespace holdfast { inline namespace v0_2 {

inline constexpr double kAuxiliaryWeight = 0.4;  // weight of the auxiliary head's loss

struct InceptionV3Options {
  std::int64_t num_classes = 1000;
  ModelVariant variant = ModelVariant::torchvision;
  bool auxiliary = false;              // reads the last map of 17x17 in training; costs a thousandth of the
                                       // arithmetic and 3.3 million parameters
  std::optional<double> dropout = {};  // empty: the variant's default
  BatchNormKind batch_norm = BatchNormKind::aten;
  bool initialize = true;  // false leaves weights undefined: saves time if a resume overwrites them
};

class InceptionV3Impl : public torch::nn::Module {
 public:
  static constexpr std::int64_t kPixels = 299;  // side of the pictures that it was designed for
  static constexpr std::int64_t kSmallestPixels = 75;
  static constexpr std::int64_t kSmallestPixelsOfBoth = 299;

  struct Outputs {
    at::Tensor logits;
    at::Tensor auxiliary;  // logits of the same classes
  };

  explicit InceptionV3Impl(const InceptionV3Options& options = {});
  ~InceptionV3Impl() override;
  at::Tensor forward(const at::Tensor& pictures);
  // Requires options().auxiliary. Works in training and in evaluation mode.
  Outputs forward_both(const at::Tensor& pictures);

  // Draws all parameters again and resets the running statistics.
  void initialize();
  const InceptionV3Options& options() const { return options_; }

 private:
  struct Layers;
  void add_layers();
  at::Tensor until_17x17(const at::Tensor& pictures);
  at::Tensor from_17x17(at::Tensor x);

  InceptionV3Options options_;
  std::unique_ptr<Layers> layers_;
  torch::nn::Dropout dropout_{nullptr};
  torch::nn::Linear fc_{nullptr};
  torch::nn::Linear auxiliary_fc_{nullptr};
};
TORCH_MODULE(InceptionV3);

}}  // namespace holdfast::v0_2
