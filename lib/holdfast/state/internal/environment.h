// What else the bits of a result depend on: libraries, processor, devices, threads, flags. Recorded as
// `environment.*`, never compared bit for bit: the checkpoint side reads a difference as the end of the
// bit-exact promise, and says so.
//
// Threads: any.
#pragma once

#include <string>

#include "holdfast/snapshot/attributes.h"

namespace holdfast::inline v1::internal {

// `device`: the first parameter's, "cpu" or "cuda".
void put_environment(const std::string& device, Attributes& out);

}  // namespace holdfast::inline v1::internal
