// The losses of SSD: smooth L1 (beta 1) over positive anchors, cross entropy over positives and the hardest
// negatives, three per positive. Computed in float32 at least. No thread waits for a device. The choice of
// negatives has no gradient.
//
//   const SsdLoss loss = ssd_loss(net->forward(pictures), anchors, match_boxes(anchors, boxes));
//   loss.total.backward();
//
// Sources: MLPerf's Loss (ssd/base_model.py), torchvision's SSD.compute_loss, tf_cnn_benchmarks' SSD300Model.
// Errors: UsageError for shapes that do not fit together. A class beyond the scores is torch's error on a CPU
// and a device assertion on a GPU. Threads: pure.
#pragma once

#include <ATen/core/Tensor.h>

#include "examples/models/ssd300.h"
#include "examples/models/ssd_matching.h"

namespace holdfast { inline namespace v0_2 {

struct SsdLoss {
  at::Tensor total, boxes, classes;  // scalars; total = boxes + classes
};

// A box is coded as (10·(centre − anchor's centre) / anchor's side, 5·log(side / anchor's side)). The
// anchors' order selects the rule:
// - mlperf: divides both sums by the picture's positives, then averages over the batch. A picture without
//   positives counts as 0. Positives enter the mining with loss 0, so they count twice if a picture has too
//   few negatives.
// - torchvision: divides both sums by the batch's positives (at least 1). Never mines positives while
//   negatives are left.
SsdLoss ssd_loss(const SsdOutput& output, const SsdAnchors& anchors, const SsdTargets& targets);

// The random targets of the published harness, which reads no pictures. Boxes are offsets uniform in [0, 1).
// Classes are uniform in [0, 1), which as integers are all 0, so no anchor is positive and the loss of boxes
// is 0. Counts of boxes are uniform in [1, 10).
struct SsdTableTargets {
  at::Tensor boxes;    // [N, 8732, 4]
  at::Tensor classes;  // [N, 8732], truncated to integers
  at::Tensor counts;   // [N]
};
// Draws from the device's generator.
SsdTableTargets draw_ssd_table_targets(std::int64_t pictures, const at::TensorOptions& options);
// The harness's rule: divides sums by the given real count of boxes and mines 3 · floor(count) negatives.
SsdLoss ssd_table_loss(const SsdOutput& output, const SsdTableTargets& targets);

// Position of each value in its row, largest first: two sorts, as in the originals. Equal values keep their
// order, so the lower index is mined first on every device.
at::Tensor descending_ranks(const at::Tensor& values);

}}  // namespace holdfast::v0_2
