// The models of the published table that classify pictures, by name, and the arithmetic of one picture.
//
//   auto model = holdfast::make_picture_model({.name = "vgg16", .variant = ModelVariant::table});
//   at::Tensor logits = model.forward(pictures);
//   model.loss(pictures, labels).backward();
//   const auto work = holdfast::count_work(model, model.pixels);          // 30.9 GFLOP forward
//
// Errors: UsageError for an unknown name, and what the model throws. Threads: as torch::nn::Module;
// count_work() counts the calling thread's work.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "examples/models/batch_norm.h"
#include "examples/models/variant.h"

namespace holdfast { inline namespace v0_2 {

// "resnet50", "resnet152", "vgg16", "alexnet", "inception_v3", "inception_v4"
const std::vector<std::string>& picture_model_names();

struct PictureModelOptions {
  std::string name = "resnet50";
  ModelVariant variant = ModelVariant::torchvision;
  std::int64_t num_classes = 0;                    // 0: the variant's default, 1000 or 1001
  std::optional<double> dropout = {};              // empty: the model's default; ResNets have none
  BatchNormKind batch_norm = BatchNormKind::aten;  // for ResNets and Inceptions; the others have none
  bool auxiliary = false;                          // adds the auxiliary head of Inception v3
  bool initialize = true;                          // false leaves weights undefined, for a resume
};

struct PictureModel {
  std::string name;
  ModelVariant variant = ModelVariant::torchvision;
  std::int64_t num_classes = 0;
  std::int64_t pixels = 0;           // side of the pictures that it was designed for
  std::int64_t smallest_pixels = 0;  // smallest side that it accepts
  std::shared_ptr<torch::nn::Module> module;
  std::function<at::Tensor(const at::Tensor&)> forward;
  // All outputs that training uses: the logits, then the auxiliary head's if there is one.
  std::function<std::vector<at::Tensor>(const at::Tensor&)> outputs;

  // Mean cross-entropy of the logits. In training an auxiliary head's is added with weight 0.4.
  at::Tensor loss(const at::Tensor& pictures, const at::Tensor& labels) const;
};
PictureModel make_picture_model(const PictureModelOptions& options);

// Multiply-adds of convolutions and linear layers for one picture. Everything else is a few thousandths.
struct ModelWork {
  double forward_macs = 0;
  // Two operations per multiply-add, forward and backward to weights and inputs, but not to the picture.
  double train_flops = 0;
};
// Runs the model on an empty batch: costs nothing and leaves buffers unchanged.
ModelWork count_work(const PictureModel& model, std::int64_t pixels);

}}  // namespace holdfast::v0_2
