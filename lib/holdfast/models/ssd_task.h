// Everything of a training step of SSD300 up to its loss, on made-up batches as well as on labelled pictures.
//
//   auto net = make_ssd300({.variant = ModelVariant::table});
//   net->to(device);
//   SsdTask task(net, SsdMode::table);
//   SsdBatch batch = task.synthetic_batch(32, device);
//   at::Tensor loss = task.loss(batch).total;               // forward pass included; inside an AutocastGuard
//
//   table    as in the published harness: the batch's pictures stay; each step jitters their colours,
//            normalises them, draws new targets, and pays for both sorts. Only of SsdBackbone::resnet34.
//   matched  labelled boxes are matched to anchors, and the model's own loss is taken. Who makes pictures
//            normalises them: normalize_ssd_pictures().
// Nothing waits for a device or copies to it after the first call on that device: a step can be captured.
//
// Errors: UsageError for a mode that the model does not have and for a batch of the other mode. Threads: one
// at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "holdfast/models/ssd300.h"
#include "holdfast/models/ssd_anchors.h"
#include "holdfast/models/ssd_loss.h"
#include "holdfast/models/ssd_matching.h"

namespace holdfast::inline v1 {

enum class SsdMode { table, matched };

struct SsdBatch {
  at::Tensor pictures;                 // [N, 3, 300, 300]; for table in [0, 1), for matched normalised
  std::optional<SsdBoxes> boxes = {};  // matched
  // Table, for comparisons: with these, steps draw nothing.
  std::optional<SsdTableTargets> targets = {};
  std::optional<at::Tensor> jitter = {};  // see jitter_colors()
};

class SsdTask {
 public:
  SsdTask(std::shared_ptr<Ssd300> net, SsdMode mode);

  // Uniform pictures in table mode, normal ones in matched mode, where each has up to eight boxes of random
  // places, sizes and classes (one at least). From the device's generator and, for boxes, the CPU's.
  SsdBatch synthetic_batch(std::int64_t pictures, const at::TensorOptions& options) const;
  SsdLoss loss(const SsdBatch& batch);

  Ssd300& net() { return *net_; }
  SsdMode mode() const { return mode_; }

 private:
  std::shared_ptr<Ssd300> net_;
  SsdMode mode_;
  SsdAnchors anchors_;  // where and in the type that the last batch needed
};

// Pictures in [0, 1]. resnet34: mean .485 .456 .406, deviation .229 .224 .225. vgg16: mean .48235 .45882
// .40784, times 255.
at::Tensor normalize_ssd_pictures(SsdBackbone backbone, const at::Tensor& pictures);

// The harness's distortion of a batch by four numbers, the same for all its pictures, in this order:
// brightness is added; contrast scales about each picture's channel means; saturation scales, and hue shifts
// by a share of the circle, in HSV. In float32 at least.
at::Tensor jitter_colors(const at::Tensor& pictures, const at::Tensor& jitter);
// Uniform in ±.125, [.5, 1.5), [.5, 1.5), ±.05; [4], from the device's generator.
at::Tensor draw_color_jitter(const at::TensorOptions& options);

}  // namespace holdfast::inline v1
