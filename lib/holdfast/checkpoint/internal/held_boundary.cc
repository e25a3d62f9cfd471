#include "holdfast/checkpoint/internal/held_boundary.h"

#include <exception>
#include <utility>

#include "holdfast/base/log.h"
#include "holdfast/base/text.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

constexpr Duration kLongestWait = std::chrono::seconds(30);

}  // namespace

void HeldBoundary::hold(bool is_last) noexcept {
  const std::int64_t step = run_.step();
  const SteadyTime now = run_.time.boundary();
  if (saves_.safe() || (!is_last && now - made_ < cost_ * kMostOfTime)) return;
  try {
    // A save of this step that is in progress holds the boundary in its image already.
    Staged image = saves_.image_in_use();
    if (!image) image = late_.image();
    if (!image) {
      if (!is_last && !run_.stager.ready()) return;
      if (!saves_.wait_for_image(kLongestWait, ImageFor::keeping)) return;
      boundary_.settle();
      image = saves_.stage_all();
      cost_ = image.copied;
      made_ = now;
    }
    image_ = std::move(image);
  } catch (const std::exception& error) {  // a save will fail for the same reason, and log it
    log_debug("the boundary of step {} is not kept: {}", step, what_of(error));
  }
}

Staged HeldBoundary::image() const {
  if (!image_ || boundary_.updating()) return {};
  // A record that has outgrown its place stays as it was.
  Staged renewed = saves_.renewed(image_);
  return renewed ? renewed : image_;
}

}}}  // namespace holdfast::v0_2::internal
