#include "examples/models/ssd_anchors.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "examples/models/ssd300.h"
#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr double kPixels = kSsdPixels;
// Cells, steps and sides in pixels, as MLPerf's and torchvision's SSD300 have them.
constexpr std::array<int, 6> kCells{38, 19, 10, 5, 3, 1};
constexpr std::array<double, 6> kSteps{8, 16, 32, 64, 100, 300};
constexpr std::array<double, 7> kSides{21, 45, 99, 153, 207, 261, 315};
constexpr std::array<bool, 6> kThreeToOne{false, true, true, true, false, false};

struct Size {
  double width, height;
};

std::vector<Size> sizes_of(std::size_t map) {
  const double side = kSides[map] / kPixels;
  // The second square: the geometric mean of this side and the next.
  const double larger = std::sqrt(side * (kSides[map + 1] / kPixels));
  std::vector<Size> sizes{{side, side}, {larger, larger}};
  for (const double ratio : {2.0, 3.0}) {
    if (ratio == 3 && !kThreeToOne[map]) continue;
    const Size wide{side * std::sqrt(ratio), side / std::sqrt(ratio)};
    sizes.push_back(wide);
    sizes.push_back({wide.height, wide.width});
  }
  return sizes;
}

// Wide boxes of the last maps are larger than the picture; both originals clip their sides.
double within(double value) { return std::clamp(value, 0.0, 1.0); }

}  // namespace

SsdAnchors make_ssd_anchors(AnchorOrder order, const at::TensorOptions& options) {
  const at::ScalarType type = options.has_dtype() ? c10::typeMetaToScalarType(options.dtype()) : at::kFloat;
  if (type != at::kFloat && type != at::kDouble) {
    throw UsageError(std::string("anchors are float32 or float64, not ") + c10::toString(type));
  }
  at::Tensor centers = at::empty({kSsdAnchors, 4}, at::kFloat);
  auto* row = centers.mutable_data_ptr<float>();
  const auto center = [&](int cell, double step) {
    const double place = (cell + 0.5) * step / kPixels;
    return order == AnchorOrder::mlperf ? within(place) : place;
  };
  const auto add = [&](std::size_t map, int y, int x, const Size& size) {
    for (const double value :
         {center(x, kSteps[map]), center(y, kSteps[map]), within(size.width), within(size.height)}) {
      *row++ = static_cast<float>(value);
    }
  };
  for (std::size_t map = 0; map < kCells.size(); ++map) {
    const std::vector<Size> sizes = sizes_of(map);
    const int cells = kCells[map] * kCells[map];
    const int count = static_cast<int>(sizes.size());
    for (int i = 0; i < cells * count; ++i) {
      // MLPerf lists all cells of one box, torchvision all boxes of one cell.
      const int cell = order == AnchorOrder::mlperf ? i % cells : i / count;
      const int box = order == AnchorOrder::mlperf ? i / cells : i % count;
      add(map, cell / kCells[map], cell % kCells[map], sizes[static_cast<std::size_t>(box)]);
    }
  }
  const bool pixels = order == AnchorOrder::torchvision;
  const double unit = pixels ? kPixels : 1;
  if (pixels) centers = centers.to(type);  // MLPerf widens float32 corners, torchvision computes wide ones
  const at::Tensor middle = centers.narrow(1, 0, 2);
  const at::Tensor half = centers.narrow(1, 2, 2) * 0.5;
  const at::Tensor corners = at::cat({middle - half, middle + half}, 1);
  const at::Device device = options.device();
  return {.order = order,
          .unit = unit,
          .centers = (centers * unit).to(device, type),
          .corners = (corners * unit).to(device, type)};
}

}}  // namespace holdfast::v0_2
