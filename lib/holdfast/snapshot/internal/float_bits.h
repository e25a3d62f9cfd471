// Which bits of a dtype's elements say that they are not finite, for the kernels.
//
// Errors: none. Threads: a pure function.
#pragma once

#include "holdfast/snapshot/finite.h"
#include "holdfast/snapshot/internal/digest_kernel.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

FloatBits float_bits(DType dtype, Infinity infinity);

}}}  // namespace holdfast::v0_2::internal
