// The 8,732 anchors ("default boxes") of SSD300: on each cell of six maps a square, a larger square, and for
// each ratio of the map a wide and a tall box.
//
// Both originals have these boxes, in another order of rows. Targets in one order train an output in the
// other to nonsense without an error. Centres and sides are rounded to float32. In float64, MLPerf's corners
// are the widened float32 ones; torchvision computes them in float64.
//
// Errors: UsageError for types other than float32 and float64. Threads: pure.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace holdfast { inline namespace v0_2 {

//   cells a side   38   19   10    5    3    1
//   boxes a cell    4    6    6    6    4    4         4·38² + 6·19² + 6·10² + 6·5² + 4·3² + 4·1² = 8732
//   step, pixels    8   16   32   64  100  300        centre (x + 1/2)·step
//   side, pixels   21   45   99  153  207  261 (315)  larger square: geometric mean with the next
//   ratios          2  2,3  2,3  2,3    2    2        (side·√ratio, side/√ratio), then the same upright
inline constexpr std::int64_t kSsdAnchors = 8732;

// mlperf: map, then box of the cell, then y, then x. Fractions of the picture's side; centres and sides are
// clamped to [0, 1]. torchvision: map, then y, then x, then box of the cell. Corners in pixels of 300; only
// sides are clamped.
enum class AnchorOrder { mlperf, torchvision };

struct SsdAnchors {
  AnchorOrder order = AnchorOrder::mlperf;
  double unit = 1;     // the picture's side in the unit of these tensors: 1, or 300 for torchvision
  at::Tensor centers;  // [8732, 4]: centre x, y, width, height
  at::Tensor corners;  // [8732, 4]: left, top, right, bottom
};

// On the device and with the type of `options`. Default: CPU, float32.
SsdAnchors make_ssd_anchors(AnchorOrder order, const at::TensorOptions& options = {});

}}  // namespace holdfast::v0_2
