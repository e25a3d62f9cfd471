// Checks and records the AugmentOptions of every picture data set. Shared, so that runs with pictures on the
// host and on a device record the same options.
//
// Threads: free functions.
#pragma once

#include "holdfast/data/augment.h"
#include "holdfast/state/stateful.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// UsageError for padding wider than the picture, and for a standard deviation that is not above 0.
void check_augmentation(const AugmentOptions& options, const PictureShape& shape);

void save_augmentation(const AugmentOptions& options, const PictureShape& shape, StateWriter& out);

}}}  // namespace holdfast::v0_2::internal
