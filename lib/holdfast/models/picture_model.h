// Those models of the published table that classify pictures, by name, and the arithmetic that one picture
// costs them.
//
//   auto model = holdfast::make_picture_model({.name = "vgg16", .variant = ModelVariant::table});
//   at::Tensor logits = model.forward(pictures);
//   model.loss(pictures, labels).backward();
//   const auto work = holdfast::count_work(model, model.pixels);          // 30.9 GFLOP forward
//
// Errors: UsageError for a name that is none of picture_model_names(), and what the model throws. Threads: as
// torch::nn::Module; count_work() counts what this thread does.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/models/batch_norm.h"
#include "holdfast/models/variant.h"

namespace holdfast::inline v1 {

// "resnet50", "resnet152", "vgg16", "alexnet", "inception_v3", "inception_v4"
const std::vector<std::string>& picture_model_names();

struct PictureModelOptions {
  std::string name = "resnet50";
  ModelVariant variant = ModelVariant::torchvision;
  std::int64_t num_classes = 0;                    // 0: the variant's own, 1000 or 1001
  std::optional<double> dropout = {};              // none: the model's own; ResNets have none
  BatchNormKind batch_norm = BatchNormKind::aten;  // of ResNets and Inceptions; the others have none
  bool auxiliary = false;                          // the auxiliary head of Inception v3
  bool initialize = true;
};

struct PictureModel {
  std::string name;
  ModelVariant variant = ModelVariant::torchvision;
  std::int64_t num_classes = 0;
  std::int64_t pixels = 0;           // the side of the pictures it is made for
  std::int64_t smallest_pixels = 0;  // that it can take
  std::shared_ptr<torch::nn::Module> module;
  std::function<at::Tensor(const at::Tensor&)> forward;
  // Every output that training looks at: the logits, and behind them the auxiliary head's where there is one.
  std::function<std::vector<at::Tensor>(const at::Tensor&)> outputs;

  // Mean cross-entropy of the logits; an auxiliary head's counts 0.4 beside it, in training only.
  at::Tensor loss(const at::Tensor& pictures, const at::Tensor& labels) const;
};
PictureModel make_picture_model(const PictureModelOptions& options);

// Multiply-adds of all that training computes in convolutions and linear layers for one picture; all else is
// a few thousandths.
struct ModelWork {
  double forward_macs = 0;
  // Two operations a multiply-add; forward, and backward to weights and inputs, but not to the picture
  // itself.
  double train_flops = 0;
};
// Sends an empty batch through: costs nothing, and leaves buffers as they are.
ModelWork count_work(const PictureModel& model, std::int64_t pixels);

}  // namespace holdfast::inline v1
