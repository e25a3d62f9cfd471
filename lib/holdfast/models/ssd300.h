// SSD300 (Liu et al. 2016): of pictures of 300x300, the offsets of 8,732 anchors and their class scores, read
// off six feature maps of 38, 19, 10, 5, 3 and 1 cells a side.
//
//   auto net = holdfast::make_ssd300({.backbone = holdfast::SsdBackbone::resnet34});
//   holdfast::SsdOutput out = net->forward(pictures);              // [N, 3, 300, 300], normalised
//
// Two originals, each with its parameter names, registration order and layout of the output:
//   resnet34  MLPerf's reference (mlcommons/training, ssd-v1): ResNet-34 up to its third stage, of stride 1;
//             19,972,534 parameters for 81 classes. boxes [N, 4, 8732], scores [N, classes, 8732], anchors in
//             AnchorOrder::mlperf. Starts: backbone as ResNet, the rest xavier_uniform, biases Torch's
//             default.
//   vgg16     torchvision's ssd300_vgg16: VGG-16, its fifth stage dilated, conv4_3 scaled to a learned norm;
//             35,641,826 parameters for 91 classes. boxes [N, 8732, 4], scores [N, 8732, classes], anchors in
//             AnchorOrder::torchvision. Starts: VGG-16 as torchvision, the rest xavier_uniform with biases 0.
// ModelVariant::table is the harness of the published table, resnet34 only: batch norms with eps 1e-4 and
// momentum 0.003, truncated normals in the backbone (internal/layers.h), biases 0, and heads whose channels
// count anchors first, then coordinates or classes: (anchor, 4), where MLPerf has (4, anchor). Names and
// shapes stay, so weights of heads load into the other form without an error and mean something else.
// Class 0 is the background. Drawn from the global CPU generator.
//
// Errors: UsageError for options that cannot be and for pictures of another size. Threads: as
// torch::nn::Module.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string_view>

#include "holdfast/models/batch_norm.h"
#include "holdfast/models/picture_model.h"
#include "holdfast/models/variant.h"

namespace holdfast::inline v1 {

inline constexpr std::int64_t kSsdPixels = 300;

enum class SsdBackbone { resnet34, vgg16 };
std::string_view word_of(SsdBackbone backbone);

struct Ssd300Options {
  SsdBackbone backbone = SsdBackbone::resnet34;
  ModelVariant variant = ModelVariant::torchvision;  // resnet34: this one means MLPerf's
  std::int64_t num_classes = 0;                      // with the background; 0: the original's, 81 or 91
  BatchNormKind batch_norm = BatchNormKind::aten;    // of resnet34; vgg16 has none
  bool initialize = true;                            // false leaves weights undefined, for a resume
};

// Undecoded: boxes are offsets from anchors (ssd_loss.h), scores are logits. In the type that autocast chose.
struct SsdOutput {
  at::Tensor boxes;
  at::Tensor scores;
};

class Ssd300 : public torch::nn::Module {
 public:
  virtual SsdOutput forward(const at::Tensor& pictures) = 0;

  // (Re)draws every parameter and resets the running statistics.
  virtual void initialize() = 0;
  const Ssd300Options& options() const { return options_; }  // num_classes filled in

 protected:
  explicit Ssd300(const Ssd300Options& options) : options_(options) {}
  void require(const at::Tensor& pictures) const;

 private:
  Ssd300Options options_;
};

std::shared_ptr<Ssd300> make_ssd300(const Ssd300Options& options = {});

// Multiply-adds and training FLOPs of one picture; forward only, costs nothing.
ModelWork count_work(Ssd300& net);

}  // namespace holdfast::inline v1
