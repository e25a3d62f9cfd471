#include "holdfast/checkpoint/internal/image_wait.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// How soon a notice is heard during the wait.
constexpr Duration kImageSlice = std::chrono::milliseconds(20);

}  // namespace

// A notice commits an image that is kept, if there is time for that.
bool ImageWait::save_follows(ImageFor use) const {
  if (use != ImageFor::keeping) return true;
  const Announced& announced = run_.outlook.announced();
  return (announced.stop_requested() || announced.deadline()) && run_.commit_fits();
}

// In slices, so that a notice is heard meanwhile, and by the run's own clock. A waiting save is recalled to
// free its image, but one that the program asked for stays if there is time for both.
bool ImageWait::wait(Duration limit, ImageFor use) {
  const SteadyTime began = run_.clock.now();
  while (true) {
    listener_.heard();
    const Announced& announced = run_.outlook.announced();
    const bool against_time = announced.deadline().has_value();
    if (!run_.stager.ready()) {
      if (too_late(use)) return false;
      if (save_follows(use)) run_.writer->recall(against_time);
    }
    // The wait may have used up the time.
    if (run_.stager.wait_ready(kImageSlice)) return !too_late(use);
    if (against_time || announced.stop_requested()) limit_.lift();
    if (run_.outlook.out_of_time(began) || run_.clock.now() - began >= limit) return false;
  }
}

}}}  // namespace holdfast::v0_2::internal
