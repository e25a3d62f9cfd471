// Matches anchors to labelled boxes, for a whole batch on its device, without waiting.
//
//   const SsdBoxes boxes = make_ssd_boxes({{{.1, .15, .45, .6, 17}}, {}}, 81).to(device);   // two pictures
//   const SsdTargets targets = match_boxes(anchors, boxes);
//
// Sources: MLPerf's Encoder.encode (ssd/utils.py), torchvision's SSDMatcher. Errors: make_ssd_boxes() throws
// UsageError for an invalid box or a class outside 1..num_classes - 1. Threads: pure.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "holdfast/models/ssd_anchors.h"

namespace holdfast { inline namespace v0_2 {

struct LabelledBox {
  double left = 0, top = 0, right = 0, bottom = 0;  // fractions of the picture's sides
  std::int64_t label = 0;
};

// The boxes of all pictures, each padded to the same number with rows of class 0.
struct SsdBoxes {
  at::Tensor corners;  // [N, M, 4] left, top, right, bottom, fractions of the picture's sides
  at::Tensor classes;  // [N, M] int64; 0: no box

  SsdBoxes to(at::Device device) const;
};

// On the CPU, with float32 corners by default.
SsdBoxes make_ssd_boxes(const std::vector<std::vector<LabelledBox>>& pictures, std::int64_t num_classes,
                        at::ScalarType type = at::kFloat);

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
