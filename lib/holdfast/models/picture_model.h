// The models of the published table by name, and the arithmetic that one picture costs them.
//
//   auto model = holdfast::make_picture_model({.name = "vgg16", .variant = ModelVariant::table});
//   at::Tensor logits = model.forward(pictures);
//   const auto work = holdfast::count_work(model, model.pixels);          // 30.9 GFLOP forward
//
// Errors: UsageError for a name that is none of picture_model_names(), and what the model throws. Threads: as
// torch::nn::Module; count_work() counts what this thread does.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "holdfast/models/variant.h"

namespace holdfast::inline v1 {

const std::vector<std::string>& picture_model_names();  // "resnet50", "resnet152", "vgg16", "alexnet"

struct PictureModelOptions {
  std::string name = "resnet50";
  ModelVariant variant = ModelVariant::torchvision;
  std::int64_t num_classes = 0;  // 0: the variant's own, 1000 or 1001
  double dropout = 0.5;          // of VGG-16 and AlexNet
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
};
PictureModel make_picture_model(const PictureModelOptions& options);

// Multiply-adds of convolutions and linear layers for one picture; all else is a few thousandths.
struct ModelWork {
  double forward_macs = 0;
  // Two operations a multiply-add; forward, and backward to weights and inputs, but not to the picture
  // itself.
  double train_flops = 0;
};
// Sends an empty batch through: costs nothing, and leaves buffers as they are.
ModelWork count_work(const PictureModel& model, std::int64_t pixels);

}  // namespace holdfast::inline v1
