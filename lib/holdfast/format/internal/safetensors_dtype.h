// The order of tensors in a safetensors file, as the format's own library writes them: wide element types
// first, so that every tensor is aligned.
//
// Errors: none. Threads: pure.
#pragma once

#include "holdfast/snapshot/dtype.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// Tensors of a higher rank are written first.
int safetensors_rank(DType dtype);

}}}  // namespace holdfast::v0_2::internal
