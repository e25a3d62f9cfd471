// The distribution of a tensor's values, for HistogramEvent: 64 bins of equal width between the extremes.
//
// Costs a few passes over the tensor, on its device, and a copy of 64 numbers to the host. Values that are
// not finite do not count. Errors: those of LibTorch. Threads: any.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "holdfast/metrics/event.h"

namespace holdfast { inline namespace v0_2 {

HistogramEvent histogram_of(std::string name, const at::Tensor& tensor, std::int64_t step);

}}  // namespace holdfast::v0_2
