#include "examples/models/ssd_loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/smooth_l1_loss.h>
#include <ATen/ops/sort.h>

#include <limits>
#include <sstream>

#include "examples/models/at_least_float.h"
#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// Hard negative mining: three of the hardest negatives for each positive (Liu et al. 2016).
constexpr std::int64_t kNegatives = 3;
// The inverse of the original's variances 0.1 and 0.2.
constexpr double kCenterScale = 10;
constexpr double kSideScale = 5;

// One number per anchor: [N, anchors].
struct Terms {
  at::Tensor boxes;     // smooth L1
  at::Tensor classes;   // cross entropy
  at::Tensor positive;  // bool
  at::Tensor count;     // [N]: number of positives
};

Terms terms_of(const SsdOutput& output, const at::Tensor& offsets, const at::Tensor& classes) {
  const std::int64_t n = classes.size(0);
  const std::int64_t anchors = classes.size(1);
  const bool anchors_last = output.boxes.sizes() == at::IntArrayRef{n, 4, anchors};
  const bool anchors_first = output.boxes.sizes() == at::IntArrayRef{n, anchors, 4};
  const bool scored = output.scores.dim() == 3 && output.scores.size(0) == n &&
                      output.scores.size(anchors_last ? 2 : 1) == anchors;
  if (!(anchors_last || anchors_first) || !scored || offsets.sizes() != at::IntArrayRef{n, anchors, 4}) {
    std::ostringstream what;
    what << "SSD's output and targets do not fit together: boxes " << output.boxes.sizes() << " and scores "
         << output.scores.sizes() << " for target boxes " << offsets.sizes() << " and target classes "
         << classes.sizes();
    throw UsageError(what.str());
  }
  const at::Tensor boxes = models::at_least_float(output.boxes);
  const at::Tensor scores = models::at_least_float(output.scores);
  Terms terms;
  terms.boxes =
      at::smooth_l1_loss(anchors_last ? boxes.transpose(1, 2) : boxes, offsets, at::Reduction::None).sum(2);
  terms.classes = anchors_last ? at::cross_entropy_loss(scores, classes, /*weight=*/{}, at::Reduction::None)
                               : at::cross_entropy_loss(scores.flatten(0, 1), classes.flatten(),
                                                        /*weight=*/{}, at::Reduction::None)
                                     .view({n, anchors});
  terms.positive = classes > 0;
  terms.count = terms.positive.sum(1);
  return terms;
}

// [N, 8732, 4]
at::Tensor offsets_from(const SsdAnchors& anchors, const at::Tensor& boxes) {
  const at::Tensor middle = anchors.centers.narrow(1, 0, 2);
  const at::Tensor sides = anchors.centers.narrow(1, 2, 2);
  return at::cat({kCenterScale * (boxes.narrow(2, 0, 2) - middle) / sides,
                  kSideScale * (boxes.narrow(2, 2, 2) / sides).log()},
                 2);
}

// The weight of each anchor's cross entropy. `asked`: negatives per picture, [N].
at::Tensor weights_of(const Terms& terms, double loss_of_positives, const at::Tensor& asked) {
  const at::Tensor hardness = terms.classes.detach().masked_fill(terms.positive, loss_of_positives);
  // Stable ranks, so that equal losses choose the same anchors on every machine.
  const at::Tensor mined = descending_ranks(hardness) < asked.unsqueeze(1);
  return terms.positive.to(terms.classes.scalar_type()) + mined;
}

struct Sums {
  at::Tensor boxes, classes;  // [N]
};
Sums sums_of(const Terms& terms, const at::Tensor& weights) {
  return {(terms.boxes * terms.positive).sum(1), (terms.classes * weights).sum(1)};
}

SsdLoss added(const at::Tensor& boxes, const at::Tensor& classes) {
  return {boxes + classes, boxes, classes};
}

}  // namespace

at::Tensor descending_ranks(const at::Tensor& values) {
  const at::Tensor order = std::get<1>(at::sort(values, /*stable=*/true, /*dim=*/1, /*descending=*/true));
  return std::get<1>(at::sort(order, /*stable=*/true, /*dim=*/1, /*descending=*/false));
}

SsdLoss ssd_loss(const SsdOutput& output, const SsdAnchors& anchors, const SsdTargets& targets) {
  const Terms terms = terms_of(output, offsets_from(anchors, targets.boxes), targets.classes);
  const at::Tensor asked = kNegatives * terms.count;
  if (anchors.order == AnchorOrder::torchvision) {
    // Sorts positives behind all negatives, as torchvision does. MLPerf gives them a loss of 0.
    const Sums sums = sums_of(terms, weights_of(terms, -std::numeric_limits<double>::infinity(), asked));
    // A batch without any object must not divide by 0.
    const at::Tensor positives = terms.count.sum().clamp_min(1);
    return added(sums.boxes.sum() / positives, sums.classes.sum() / positives);
  }
  const Sums sums = sums_of(terms, weights_of(terms, 0, asked));
  // MLPerf averages over pictures, and pictures without objects count as 0.
  const at::Tensor share = (terms.count > 0).to(terms.classes.scalar_type()) / terms.count.clamp_min(1);
  return added((sums.boxes * share).mean(), (sums.classes * share).mean());
}

SsdTableTargets draw_ssd_table_targets(std::int64_t pictures, const at::TensorOptions& options) {
  return {.boxes = at::rand({pictures, kSsdAnchors, 4}, options),
          .classes = at::rand({pictures, kSsdAnchors}, options),
          .counts = at::rand({pictures}, options) * 9 + 1};
}

SsdLoss ssd_table_loss(const SsdOutput& output, const SsdTableTargets& targets) {
  const Terms terms = terms_of(output, targets.boxes, targets.classes.to(at::kLong));
  const Sums sums = sums_of(terms, weights_of(terms, 0, kNegatives * targets.counts.to(at::kLong)));
  return added((sums.boxes / targets.counts).mean(), (sums.classes / targets.counts).mean());
}

}}  // namespace holdfast::v0_2
