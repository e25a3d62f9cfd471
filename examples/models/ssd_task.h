// A training step of SSD300 up to its loss, on synthetic batches and on labelled pictures.
//
//   auto net = make_ssd300({.variant = ModelVariant::table});
//   net->to(device);
//   SsdTask task(net, SsdMode::table);
//   SsdBatch batch = task.synthetic_batch(32, device);
//   at::Tensor loss = task.loss(batch).total;   // includes the forward pass; inside an AutocastGuard
//
// After the first call on a device nothing waits for it or copies to it, so a step can be captured. Errors:
// UsageError for a mode that the model lacks and for a batch of the other mode. Threads: one at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "examples/models/ssd300.h"
#include "examples/models/ssd_anchors.h"
#include "examples/models/ssd_loss.h"
#include "examples/models/ssd_matching.h"

namespace holdfast { inline namespace v0_2 {

// table: as the published harness. The pictures stay; each step jitters their colours, normalises them, draws
// new targets, and makes both sorts. Only for SsdBackbone::resnet34. matched: matches labelled boxes to
// anchors and uses the model's own loss. The caller normalises the pictures with normalize_ssd_pictures().
enum class SsdMode { table, matched };

struct SsdBatch {
  at::Tensor pictures;                 // [N, 3, 300, 300]; table: in [0, 1), matched: normalised
  std::optional<SsdBoxes> boxes = {};  // matched only
  // Table only, for comparisons: with these a step draws nothing.
  std::optional<SsdTableTargets> targets = {};
  std::optional<at::Tensor> jitter = {};  // see jitter_colors()
};

class SsdTask {
 public:
  SsdTask(std::shared_ptr<Ssd300> net, SsdMode mode);

  // Table: uniform pictures. Matched: normal pictures with one to eight boxes of random places, sizes and
  // classes. Draws from the device's generator and, for boxes, the CPU's.
  SsdBatch synthetic_batch(std::int64_t pictures, const at::TensorOptions& options) const;
  SsdLoss loss(const SsdBatch& batch);

  Ssd300& net() { return *net_; }
  SsdMode mode() const { return mode_; }

 private:
  std::shared_ptr<Ssd300> net_;
  SsdMode mode_;
  SsdAnchors anchors_;  // on the device and in the type of the last batch
};

// Pictures in [0, 1]. resnet34: mean .485 .456 .406, deviation .229 .224 .225. vgg16: mean .48235 .45882
// .40784, times 255.
at::Tensor normalize_ssd_pictures(SsdBackbone backbone, const at::Tensor& pictures);

// The harness's distortion of a batch by four numbers, the same for all pictures, in this order. Brightness
// is added. Contrast scales around each picture's channel means. Saturation scales, and hue shifts by a share
// of the circle, in HSV. In float32 at least.
at::Tensor jitter_colors(const at::Tensor& pictures, const at::Tensor& jitter);
// [4], uniform in ±.125, [.5, 1.5), [.5, 1.5), ±.05, from the device's generator.
at::Tensor draw_color_jitter(const at::TensorOptions& options);

}}  // namespace holdfast::v0_2
