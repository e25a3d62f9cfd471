#include "examples/models/ssd_task.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/where.h>

#include <array>
#include <utility>

#include "examples/models/at_least_float.h"
#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr std::int64_t kMostBoxes = 8;

struct Channel {
  double mean, deviation;
};
// Mean and deviation of ImageNet's channels.
constexpr std::array<Channel, 3> kImageNet{{{.485, .229}, {.456, .224}, {.406, .225}}};
// A deviation of 1/255 undoes the scaling to 0…1: the original VGG-16 saw values up to 255.
constexpr std::array<Channel, 3> kTorchvisionSsd{
    {{.48235, 1 / 255.0}, {.45882, 1 / 255.0}, {.40784, 1 / 255.0}}};

// Scales the saturation and keeps hue and value. What a channel lacks of the largest grows by the factor, up
// to the point where the smallest is 0.
at::Tensor saturate(const at::Tensor& x, const at::Tensor& factor) {
  const at::Tensor value = x.amax(1, /*keepdim=*/true);
  const at::Tensor chroma = value - x.amin(1, /*keepdim=*/true);
  const at::Tensor scale = at::where(value > 0, at::minimum(factor, value / chroma), 0);  // x / 0 is inf
  return value - (value - x) * at::where(chroma > 0, scale, 0);
}

// Hue is an angle in units of a sixth of the circle.
at::Tensor turn_hue(const at::Tensor& x, const at::Tensor& circles) {
  const at::Tensor value = x.amax(1, /*keepdim=*/true);
  const at::Tensor chroma = value - x.amin(1, /*keepdim=*/true);
  const at::Tensor divisor = at::where(chroma > 0, chroma, 1);
  const at::Tensor red = x.narrow(1, 0, 1), green = x.narrow(1, 1, 1), blue = x.narrow(1, 2, 1);
  const at::Tensor of_red = (green - blue) / divisor;
  // Where a channel is the largest decides the sector of the colour circle.
  const at::Tensor of_green = (blue - red) / divisor + 2;
  const at::Tensor of_blue = (red - green) / divisor + 4;
  const at::Tensor hue = at::where(value == red, of_red, at::where(value == green, of_green, of_blue));
  // From HSV to RGB in closed form: value - chroma * clamp(min(k, 4 - k), 0, 1) with k = (n + hue) mod 6. n
  // is 5, 3 and 1 for red, green and blue.
  const at::Tensor channel = at::arange(5, 0, -2, x.options()).view({1, 3, 1, 1});
  const at::Tensor k = (hue + 6 * circles + channel).remainder(6);
  return value - chroma * at::minimum(k, 4 - k).clamp(0, 1);
}

}  // namespace

at::Tensor normalize_ssd_pictures(SsdBackbone backbone, const at::Tensor& pictures) {
  at::Tensor result = models::at_least_float(pictures).clone();
  const auto& channels = backbone == SsdBackbone::vgg16 ? kTorchvisionSsd : kImageNet;
  for (std::size_t i = 0; i < channels.size(); ++i) {
    result.select(1, static_cast<std::int64_t>(i)).sub_(channels[i].mean).div_(channels[i].deviation);
  }
  return result;
}

at::Tensor jitter_colors(const at::Tensor& pictures, const at::Tensor& jitter) {
  at::Tensor x = models::at_least_float(pictures) + jitter[0];
  const at::Tensor mean = x.mean({2, 3}, /*keepdim=*/true);
  x = turn_hue(saturate((x - mean) * jitter[1] + mean, jitter[2]), jitter[3]);
  return x.contiguous(pictures.suggest_memory_format());
}

at::Tensor draw_color_jitter(const at::TensorOptions& options) {
  const at::Tensor share = at::rand({4}, options);
  const at::Tensor contrast = share.narrow(0, 1, 2) + 0.5;
  return at::cat({share.narrow(0, 0, 1) * 0.25 - 0.125, contrast, share.narrow(0, 3, 1) * 0.1 - 0.05});
}

SsdTask::SsdTask(std::shared_ptr<Ssd300> net, SsdMode mode) : net_(std::move(net)), mode_(mode) {
  if (mode == SsdMode::table && net_->options().backbone == SsdBackbone::vgg16) {
    throw UsageError(
        "the table's synthetic mode is of the backbone resnet34: take SsdMode::matched for vgg16");
  }
}

SsdBatch SsdTask::synthetic_batch(std::int64_t pictures, const at::TensorOptions& options) const {
  const std::array<std::int64_t, 4> sizes{pictures, 3, kSsdPixels, kSsdPixels};
  SsdBatch batch;
  if (mode_ == SsdMode::table) {
    batch.pictures = at::rand(sizes, options);
    return batch;
  }
  batch.pictures = at::randn(sizes, options);
  const std::int64_t classes = net_->options().num_classes;
  const at::Tensor place = at::rand({pictures, kMostBoxes, 4}, at::kFloat);
  const at::Tensor low = place.narrow(2, 0, 2) * 0.8;
  const at::Tensor high = (low + 0.05 + place.narrow(2, 2, 2) * 0.5).clamp_max(1);
  const at::Tensor counts = at::randint(1, kMostBoxes + 1, {pictures, 1}, at::kLong);
  const at::Tensor labels = at::randint(1, classes, {pictures, kMostBoxes}, at::kLong);
  const at::Tensor given = at::arange(kMostBoxes) < counts;
  batch.boxes = SsdBoxes{at::cat({low, high}, 2), at::where(given, labels, 0)}.to(batch.pictures.device());
  return batch;
}

SsdLoss SsdTask::loss(const SsdBatch& batch) {
  const bool table = mode_ == SsdMode::table;
  if (table == batch.boxes.has_value()) {
    throw UsageError(
        table ? "a batch with labelled boxes is for SsdMode::matched, this task is of SsdMode::table"
              : "SsdMode::matched needs a batch with labelled boxes: fill SsdBatch::boxes");
  }
  const at::TensorOptions like_loss = models::at_least_float(batch.pictures.narrow(0, 0, 0)).options();
  if (table) {
    at::Tensor pictures;
    {
      const at::NoGradGuard no_grad;
      const at::Tensor jitter = batch.jitter ? *batch.jitter : draw_color_jitter(like_loss);
      pictures = normalize_ssd_pictures(net_->options().backbone, jitter_colors(batch.pictures, jitter));
    }
    return ssd_table_loss(
        net_->forward(pictures),
        batch.targets ? *batch.targets : draw_ssd_table_targets(batch.pictures.size(0), like_loss));
  }
  // Made once for each device and type.
  if (!anchors_.centers.defined() || anchors_.centers.device() != like_loss.device() ||
      anchors_.centers.dtype() != like_loss.dtype()) {
    const bool vgg = net_->options().backbone == SsdBackbone::vgg16;
    anchors_ = make_ssd_anchors(vgg ? AnchorOrder::torchvision : AnchorOrder::mlperf, like_loss);
  }
  return ssd_loss(net_->forward(batch.pictures), anchors_, match_boxes(anchors_, *batch.boxes));
}

}}  // namespace holdfast::v0_2
