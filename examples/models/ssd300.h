// SSD300 (Liu et al. 2016). For pictures of 300x300 it returns the offsets and class scores of 8,732 anchors.
// They come from six feature maps of 38, 19, 10, 5, 3 and 1 cells a side.
//
//   auto net = holdfast::make_ssd300({.backbone = holdfast::SsdBackbone::resnet34});
//   holdfast::SsdOutput out = net->forward(pictures);              // [N, 3, 300, 300], normalised
//
// docs/models_and_the_published_table.md describes the two originals and the variant `table`. The heads of
// MLPerf and of `table` have equal names and shapes, but another order of channels. So weights of one load
// into the other without an error, and mean something else. Class 0 is the background. Weights come from the
// global CPU generator. Errors: UsageError for impossible options and for pictures of another size. Threads:
// as torch::nn::Module.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string_view>

#include "examples/models/batch_norm.h"
#include "examples/models/picture_model.h"
#include "examples/models/variant.h"

namespace holdfast { inline namespace v0_2 {

inline constexpr std::int64_t kSsdPixels = 300;

enum class SsdBackbone { resnet34, vgg16 };
std::string_view word_of(SsdBackbone backbone);

struct Ssd300Options {
  SsdBackbone backbone = SsdBackbone::resnet34;
  ModelVariant variant = ModelVariant::torchvision;  // for resnet34 `torchvision` means MLPerf's
  std::int64_t num_classes = 0;                      // with the background; 0: the original's, 81 or 91
  BatchNormKind batch_norm = BatchNormKind::aten;    // for resnet34; vgg16 has none
  bool initialize = true;                            // false leaves weights undefined, for a resume
};

// Not decoded: boxes are offsets from anchors (ssd_loss.h), scores are logits. Type: as autocast chose.
struct SsdOutput {
  at::Tensor boxes;
  at::Tensor scores;
};

class Ssd300 : public torch::nn::Module {
 public:
  virtual SsdOutput forward(const at::Tensor& pictures) = 0;

  // Draws all parameters again and resets the running statistics.
  virtual void initialize() = 0;
  const Ssd300Options& options() const { return options_; }  // num_classes filled in

 protected:
  explicit Ssd300(const Ssd300Options& options) : options_(options) {}
  void require(const at::Tensor& pictures) const;

 private:
  Ssd300Options options_;
};

std::shared_ptr<Ssd300> make_ssd300(const Ssd300Options& options = {});

// Multiply-adds and training FLOPs of one picture. Runs forward on an empty batch, which costs nothing.
ModelWork count_work(Ssd300& net);

}}  // namespace holdfast::v0_2
