// The boxes of SSD's pictures, from a list that a test can read.
//
//   const SsdBoxes boxes = make_ssd_boxes({{{.1, .15, .45, .6, 17}}, {}});   // two pictures, the second without any
//
// Threads: pure.
#pragma once

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "examples/models/ssd_matching.h"

namespace holdfast::test {

struct LabelledBox {
  double left = 0, top = 0, right = 0, bottom = 0;  // fractions of the picture's sides
  std::int64_t label = 0;
};

// Padded to the largest number of boxes with rows of class 0.
inline SsdBoxes make_ssd_boxes(const std::vector<std::vector<LabelledBox>>& pictures,
                               at::ScalarType type = at::kFloat) {
  std::size_t most = 0;
  for (const auto& boxes : pictures) most = std::max(most, boxes.size());
  const auto n = static_cast<std::int64_t>(pictures.size());
  const auto m = static_cast<std::int64_t>(most);
  const at::Tensor corners = at::zeros({n, m, 4}, at::kDouble);
  SsdBoxes all{.corners = {}, .classes = at::zeros({n, m}, at::kLong)};
  for (std::int64_t picture = 0; picture < n; ++picture) {
    std::int64_t row = picture * m;
    for (const LabelledBox& box : pictures[static_cast<std::size_t>(picture)]) {
      all.classes.mutable_data_ptr<std::int64_t>()[row] = box.label;
      std::ranges::copy(std::initializer_list<double>{box.left, box.top, box.right, box.bottom},
                        corners.mutable_data_ptr<double>() + 4 * row++);
    }
  }
  all.corners = corners.to(type);
  return all;
}

}  // namespace holdfast::test
