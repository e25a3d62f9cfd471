// What every data set of pictures does with its AugmentOptions before it uses them: looks whether they fit
// the pictures, and records them. One place, so that runs on the host's and on a device's pictures record the
// same.
//
// Threads: free functions.
#pragma once

#include "holdfast/data/augment.h"
#include "holdfast/state/stateful.h"

namespace holdfast::inline v1::internal {

// UsageError for a padding wider than the picture, or a standard deviation that is not above 0.
void check_augmentation(const AugmentOptions& options, const PictureShape& shape);

void save_augmentation(const AugmentOptions& options, const PictureShape& shape, StateWriter& out);

}  // namespace holdfast::inline v1::internal
