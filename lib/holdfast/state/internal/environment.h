// What else the bits of a result depend on: libraries, processor, devices, threads, flags. Checkpoints record
// it as `environment.*`. If it differs on resume, the run continues and logs that bit-exactness is not
// promised.
//
// Threads: any.
#pragma once

#include <c10/core/Device.h>

#include <span>

#include "holdfast/snapshot/attributes.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// `gpus`: those that hold tensors of modules; none: the run trains on the processor.
void put_environment(std::span<const c10::DeviceIndex> gpus, Attributes& out);

}}}  // namespace holdfast::v0_2::internal
