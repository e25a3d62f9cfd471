// Pictures that need no download and can be learnt: each of ten classes has its own stripes and colours, each
// picture its own contrast, shift and noise. Deterministic: equal bytes on every machine and for any thread
// count. 50,000 pictures take about 0.1 s.
#pragma once

#include <cstdint>

#include "holdfast/data/pictures.h"

namespace holdfast::inline v1 {

// `count` pictures to train with and a fifth as many (at least 10) to test with. Requires count >= 1;
// UsageError otherwise. A smaller set is a prefix of a larger one.
PictureSplits synthetic_pictures(std::int64_t count = 50'000);

}  // namespace holdfast::inline v1
