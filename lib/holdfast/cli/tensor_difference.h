// How far apart two tensors of one type and shape are.
//
// Threads: pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "holdfast/snapshot/dtype.h"

namespace holdfast::inline v1 {

struct TensorDifference {
  std::uint64_t elements = 0;
  std::uint64_t different = 0;  // by bits: 0.0 and -0.0 differ, equal NaNs do not
  std::uint64_t first = 0;      // index of the first different element
  double largest = 0;           // largest absolute difference; infinite where one is NaN or infinite
  // Representable numbers between the two farthest apart in this measure; nullopt for integers, and when a
  // NaN is among them.
  std::optional<std::uint64_t> ulp;
};

// Requires: both spans have the same size, a multiple of the element's. Complex numbers are compared by
// parts.
TensorDifference compare_tensors(DType dtype, std::span<const std::byte> a, std::span<const std::byte> b);

}  // namespace holdfast::inline v1
