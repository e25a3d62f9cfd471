// How much two tensors of one type and shape differ.
//
// Errors: none. Threads: pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "holdfast/snapshot/dtype.h"

namespace holdfast { inline namespace v0_2 {

struct TensorDifference {
  std::uint64_t elements = 0;
  std::uint64_t different = 0;  // compared by bits: 0.0 and -0.0 differ, equal NaNs do not
  std::uint64_t first = 0;      // index of the first different element
  double largest = 0;           // largest absolute difference; infinite if one value is NaN or infinite
  // Largest number of representable values between two elements; nullopt for integers, and if one is a NaN.
  std::optional<std::uint64_t> ulp;
};

// Requires spans of equal size, a multiple of the element's. Compares complex numbers part by part.
TensorDifference compare_tensors(DType dtype, std::span<const std::byte> a, std::span<const std::byte> b);

}}  // namespace holdfast::v0_2
