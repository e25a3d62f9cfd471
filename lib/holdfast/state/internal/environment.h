// What else the bits of a result depend on: libraries, processor, devices, threads, flags. Checkpoints record
// it as `environment.*`. If it differs on resume, the run continues and logs that bit-exactness is not
// promised.
//
// Threads: any.
#pragma once

#include <string>

#include "holdfast/snapshot/attributes.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// `device`: where the first parameter is, "cpu" or "cuda".
void put_environment(const std::string& device, Attributes& out);

}}}  // namespace holdfast::v0_2::internal
