// Inception v3 (Szegedy et al. 2015) with torchvision's parameter names and registration order.
//
//   holdfast::InceptionV3 net(holdfast::InceptionV3Options{.auxiliary = true});
//   at::Tensor logits = net->forward(pictures);           // [N, 3, H, W] -> [N, num_classes]
//   auto [main, side] = net->forward_both(pictures);      // with the auxiliary head
//   loss = cross_entropy(main, labels) + holdfast::kAuxiliaryWeight * cross_entropy(side, labels);
//
// Pictures have at least 75 pixels a side, those of forward_both() 299.
// 23,834,568 parameters for 1000 classes; with the auxiliary head, which reads the last map of 17x17 in
// training, 27,161,264. The variants:
//   torchvision  average pools count the zeros around a picture; dropout of 0.5 before the last layer;
//                convolutions and linear layers normal of 0.1 (auxiliary fc: 0.001), their biases as Linear's
//                default, batch norms 1 and 0. torchvision asks for 0.01 in one convolution of the auxiliary
//                head, but in a place where nothing reads it; so it is 0.1 here as well. Its transform_input
//                is not here.
//   table        average pools count what is inside, the last block's pool is a max pool; no dropout, no
//                auxiliary head; batch norms have a fixed scale of 1, their `weight` is a buffer and no
//                parameter, and a momentum of 0.001; truncated normals (internal/layers.h).
// All batch norms have an epsilon of 1e-3. Drawn from the global CPU generator, in registration order.
// Errors: UsageError for options that cannot be, and of forward() for pictures that are too small and for
// what the chosen batch norms cannot do (batch_norm.h). Threads: as torch::nn::Module.
#pragma once

#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "holdfast/models/batch_norm.h"
#include "holdfast/models/variant.h"

namespace holdfast::inline v1 {

inline constexpr double kAuxiliaryWeight = 0.4;  // of the auxiliary head's loss beside the other

struct InceptionV3Options {
  std::int64_t num_classes = 1000;
  ModelVariant variant = ModelVariant::torchvision;
  bool auxiliary = false;              // costs a thousandth of the arithmetic and 3.3 million parameters
  std::optional<double> dropout = {};  // none: the variant's own
  BatchNormKind batch_norm = BatchNormKind::aten;
  bool initialize = true;  // false leaves weights undefined, for a resume that overwrites them
};

class InceptionV3Impl : public torch::nn::Module {
 public:
  static constexpr std::int64_t kPixels = 299;  // what it is made for
  static constexpr std::int64_t kSmallestPixels = 75;
  static constexpr std::int64_t kSmallestPixelsOfBoth = 299;

  struct Outputs {
    at::Tensor logits;
    at::Tensor auxiliary;  // logits of the same classes
  };

  explicit InceptionV3Impl(const InceptionV3Options& options = {});
  ~InceptionV3Impl() override;
  at::Tensor forward(const at::Tensor& pictures);
  // Requires options().auxiliary; whatever the mode.
  Outputs forward_both(const at::Tensor& pictures);

  // (Re)draws every parameter and resets the running statistics.
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

}  // namespace holdfast::inline v1
