#include "examples/models/ssd_matching.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

namespace holdfast { inline namespace v0_2 {
namespace {

// Jaccard overlap, as in SSD (Liu et al. 2016).
constexpr double kOverlap = 0.5;

at::Tensor area(const at::Tensor& corners) {
  const at::Tensor sides = corners.narrow(-1, 2, 2) - corners.narrow(-1, 0, 2);
  return sides.select(-1, 0) * sides.select(-1, 1);
}

// [N, M, 4] and [A, 4] -> [N, M, A]
at::Tensor overlaps(const at::Tensor& boxes, const at::Tensor& anchors) {
  const at::Tensor box = boxes.unsqueeze(2);
  const at::Tensor low = at::maximum(box.narrow(-1, 0, 2), anchors.narrow(-1, 0, 2));
  const at::Tensor high = at::minimum(box.narrow(-1, 2, 2), anchors.narrow(-1, 2, 2));
  const at::Tensor sides = (high - low).clamp_min(0);
  const at::Tensor both = sides.select(-1, 0) * sides.select(-1, 1);
  return both / (area(boxes).unsqueeze(2) + area(anchors) - both);
}

at::Tensor centers_of(const at::Tensor& corners) {
  const at::Tensor low = corners.narrow(-1, 0, 2);
  const at::Tensor high = corners.narrow(-1, 2, 2);
  return at::cat({(low + high) * 0.5, high - low}, -1);
}

}  // namespace

SsdBoxes SsdBoxes::to(at::Device device) const { return {corners.to(device), classes.to(device)}; }

SsdTargets match_boxes(const SsdAnchors& anchors, const SsdBoxes& boxes) {
  const at::NoGradGuard no_grad;
  const std::int64_t n = boxes.classes.size(0);
  const std::int64_t m = boxes.classes.size(1);
  // No picture has a box, and torch refuses a maximum over no elements.
  if (m == 0) {
    return {.boxes = anchors.centers.expand({n, -1, -1}),
            .classes = at::zeros({n, anchors.centers.size(0)}, boxes.classes.options())};
  }
  const at::Tensor corners = boxes.corners.to(anchors.corners.scalar_type()) * anchors.unit;
  const at::Tensor real = boxes.classes > 0;
  // Rows that only pad the batch must never be the best.
  const at::Tensor overlap =
      overlaps(corners, anchors.corners).masked_fill(real.logical_not().unsqueeze(2), -1);
  const auto [best, best_box] = overlap.max(1);

  // For each anchor the last box that claims it; -1: none.
  const at::Tensor order = at::arange(m, boxes.classes.options()).expand({n, m});
  const at::Tensor claims = at::where(real, order, -1);
  // "amax": the last box wins, in whatever order the device writes.
  const at::Tensor claimed_by = at::full({n, anchors.corners.size(0)}, -1, boxes.classes.options())
                                    .scatter_reduce(1, overlap.argmax(2), claims, "amax");
  const at::Tensor claimed = claimed_by >= 0;
  // The two references differ at exactly the limit.
  const at::Tensor enough = anchors.order == AnchorOrder::mlperf ? best > kOverlap : best >= kOverlap;

  const at::Tensor positive = claimed.logical_or(enough);
  const at::Tensor box = at::where(claimed, claimed_by, best_box);
  const at::Tensor matched = corners.gather(1, box.unsqueeze(2).expand({-1, -1, 4}));
  return {.boxes = centers_of(at::where(positive.unsqueeze(2), matched, anchors.corners)),
          .classes = at::where(positive, boxes.classes.gather(1, box), 0)};
}

}}  // namespace holdfast::v0_2
