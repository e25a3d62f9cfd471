#include "holdfast/data/internal/augment_options.h"

#include <cstddef>
#include <string>
#include <vector>

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

void check_augmentation(const AugmentOptions& options, const PictureShape& shape) {
  if (options.padding < 0 || options.padding > shape.width || options.padding > shape.height) {
    throw UsageError("the crop's padding must lie between 0 and the picture's side, not " +
                     std::to_string(options.padding));
  }
  for (int c = 0; c < shape.channels; ++c) {
    // Negated, so that NaN is refused as well. The table divides by it.
    if (!(options.stddev[static_cast<std::size_t>(c)] > 0)) {
      throw UsageError("the standard deviation of channel " + std::to_string(c) + " must be above 0");
    }
  }
}

void save_augmentation(const AugmentOptions& options, const PictureShape& shape, StateWriter& out) {
  out.option("crop_padding", std::int64_t{options.padding});
  out.option("flip", options.flip);
  // Only the channels that exist: the other numbers decide nothing, so a change of them must not refuse a
  // resume.
  const auto channels = static_cast<std::size_t>(shape.channels);
  out.option("mean", std::vector<double>(options.mean.begin(), options.mean.begin() + channels));
  out.option("stddev", std::vector<double>(options.stddev.begin(), options.stddev.begin() + channels));
}

}}}  // namespace holdfast::v0_2::internal
