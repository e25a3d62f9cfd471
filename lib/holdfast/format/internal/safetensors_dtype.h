// The order in which the format's own library writes tensors: by element type, wide ones first, so that every
// tensor is aligned for its elements.
//
// Threads: pure.
#pragma once

#include "holdfast/snapshot/dtype.h"

namespace holdfast::inline v1::internal {

// Higher ranks are written first.
int safetensors_rank(DType dtype);

}  // namespace holdfast::inline v1::internal
