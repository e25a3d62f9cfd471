// Inception v4 (Szegedy et al. 2016) with timm's parameter names and registration order.
//
//   holdfast::InceptionV4 net;
//   at::Tensor logits = net->forward(pictures);           // [N, 3, H, W] -> [N, num_classes]
//
// Pictures have at least 75 pixels a side.
// 42,679,816 parameters for 1000 classes. Average pools count what is inside the picture; all batch norms
// have an epsilon of 1e-3. The variants:
//   torchvision  as in timm: no dropout, Torch's default start, batch norms 1 and 0
//   table        dropout of 0.2; batch norms have a fixed scale of 1, their `weight` is a buffer and no
//                parameter, and a momentum of 0.001; truncated normals (internal/layers.h). The harness joins
//                branches in another order, and has rows before columns in some where they are behind here:
//                the same arithmetic.
// Drawn from the global CPU generator, in registration order.
// Errors: UsageError for options that cannot be, and of forward() for pictures that are too small and for
// what the chosen batch norms cannot do (batch_norm.h). Threads: as torch::nn::Module.
#pragma once

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <optional>

#include "holdfast/models/batch_norm.h"
#include "holdfast/models/variant.h"

namespace holdfast::inline v1 {

struct InceptionV4Options {
  std::int64_t num_classes = 1000;
  ModelVariant variant = ModelVariant::torchvision;
  std::optional<double> dropout = {};  // none: the variant's own
  BatchNormKind batch_norm = BatchNormKind::aten;
  bool initialize = true;  // false leaves weights undefined, for a resume that overwrites them
};

class InceptionV4Impl : public torch::nn::Module {
 public:
  static constexpr std::int64_t kPixels = 299;  // what it is made for
  static constexpr std::int64_t kSmallestPixels = 75;

  explicit InceptionV4Impl(const InceptionV4Options& options = {});
  at::Tensor forward(const at::Tensor& pictures);

  // (Re)draws every parameter and resets the running statistics.
  void initialize();
  const InceptionV4Options& options() const { return options_; }

 private:
  std::int64_t add_features();  // returns their channels

  InceptionV4Options options_;
  torch::nn::Sequential features_;
  torch::nn::Dropout dropout_{nullptr};
  torch::nn::Linear last_linear_{nullptr};
};
TORCH_MODULE(InceptionV4);

}  // namespace holdfast::inline v1
