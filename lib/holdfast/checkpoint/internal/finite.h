// Whether a state is worth going back to: no NaN and no infinity in any floating-point tensor. Reads memory
// at its own speed, stops at the first tensor that has one.
//
// Threads: free functions, pure.
#pragma once

#include <cstddef>
#include <span>

#include "holdfast/snapshot/snapshot.h"

namespace holdfast::inline v1::internal {

bool all_finite(std::span<const std::byte> bytes, DType dtype);
bool all_finite(const Snapshot& snapshot);

}  // namespace holdfast::inline v1::internal
