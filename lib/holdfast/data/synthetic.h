// Synthetic pictures that need no download and can be learnt. Each of ten classes has its own stripes and
// colours; each picture its own contrast, shift and noise. Bytes are equal on every machine and for any
// number of threads. 50,000 pictures take about 0.1 s. Errors: below. Threads: free function.
#pragma once

#include <cstdint>

#include "holdfast/base/export.h"
#include "holdfast/data/pictures.h"

namespace holdfast { inline namespace v0_2 {

// `count` training pictures and a fifth as many test pictures (at least 10). UsageError unless count >= 1. A
// smaller set is a prefix of a larger one.
HOLDFAST_EXPORT PictureSplits synthetic_pictures(std::int64_t count = 50'000);

}}  // namespace holdfast::v0_2
