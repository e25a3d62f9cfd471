// Matches anchors to labelled boxes, for a whole batch on its device, without waiting.
//
//   const SsdTargets targets = match_boxes(anchors, boxes.to(device));
//
// Sources: MLPerf's Encoder.encode (ssd/utils.py), torchvision's SSDMatcher. Requires boxes with left < right
// and top < bottom. Threads: pure.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "examples/models/ssd_anchors.h"

namespace holdfast { inline namespace v0_2 {

// The boxes of all pictures, each padded to the same number with rows of class 0.
struct SsdBoxes {
  at::Tensor corners;  // [N, M, 4] left, top, right, bottom, fractions of the picture's sides
  at::Tensor classes;  // [N, M] int64; 0: no box

  SsdBoxes to(at::Device device) const;
};

// One row per anchor, in the anchors' order, unit and type.
struct SsdTargets {
  at::Tensor boxes;    // [N, 8732, 4] centre x, y, width, height: the matched box, or the anchor itself
  at::Tensor classes;  // [N, 8732] int64, 0 for background
};

// An anchor is positive if its best box overlaps it by an IoU above 0.5 (mlperf) or of at least 0.5
// (torchvision). It is also positive if it is the best anchor of some box, however small the overlap. If two
// boxes claim an anchor, the later one has it. Among equal overlaps the first box or anchor wins. A box
// without any overlap claims row 0, as in both originals. A picture without boxes has no positives.
SsdTargets match_boxes(const SsdAnchors& anchors, const SsdBoxes& boxes);

}}  // namespace holdfast::v0_2
