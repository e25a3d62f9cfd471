// The losses of SSD: smooth L1 (beta 1) over positive anchors, cross entropy over positives and the hardest
// negatives, three for each positive. Nothing waits for a device; all of it is computed in float32 at least,
// whatever autocast made of the output. Gradients do not pass through the choice of negatives.
//
//   const SsdLoss loss = ssd_loss(net->forward(pictures), anchors, match_boxes(anchors, boxes));
//   loss.total.backward();
//
// A box is coded as (10·(centre - anchor's centre) / anchor's side, 5·log(side / anchor's side)). The rules:
//   mlperf       both sums are divided by the picture's positives, then averaged over the batch; a picture
//                without positives counts as 0. A positive enters the mining with loss 0: where pictures have
//                fewer negatives than are asked for, it counts twice.
//   torchvision  both sums are divided by the batch's positives (at least 1). Positives are never mined while
//                negatives are left.
// The anchors' order tells which: it belongs to the model and so to its rule.
//
// The table's rule works on synthetic targets, which have no boxes to match (see SsdTableTargets): sums are
// divided by the given count of boxes, a real number, and 3 · floor(count) negatives are mined.
//
// Sources: MLPerf's Loss (ssd/base_model.py), torchvision's SSD.compute_loss, tf_cnn_benchmarks' SSD300Model.
// Errors: UsageError for shapes that do not fit together. A class beyond the scores is what Torch says to it:
// an error on the CPU, a device assertion on a GPU. Threads: pure.
#pragma once

#include <ATen/core/Tensor.h>

#include "holdfast/models/ssd300.h"
#include "holdfast/models/ssd_matching.h"

namespace holdfast::inline v1 {

struct SsdLoss {
  at::Tensor total, boxes, classes;  // scalars; total = boxes + classes
};

SsdLoss ssd_loss(const SsdOutput& output, const SsdAnchors& anchors, const SsdTargets& targets);

// What the published harness makes up for each step instead of reading pictures: offsets uniform in [0, 1) as
// boxes, classes uniform in [0, 1), which as integers are all 0, so that no anchor is positive and the loss
// of boxes is 0, and counts of boxes uniform in [1, 10).
struct SsdTableTargets {
  at::Tensor boxes;    // [N, 8732, 4]
  at::Tensor classes;  // [N, 8732], truncated to integers
  at::Tensor counts;   // [N]
};
// From the device's generator.
SsdTableTargets draw_ssd_table_targets(std::int64_t pictures, const at::TensorOptions& options);
SsdLoss ssd_table_loss(const SsdOutput& output, const SsdTableTargets& targets);

// The place of each value in its row, largest first: two sorts, as in the originals. Equal values keep their
// order: the lower index is mined first, on every device.
at::Tensor descending_ranks(const at::Tensor& values);

}  // namespace holdfast::inline v1
