#include "holdfast/planning/step_times.h"

#include <cmath>
#include <utility>

namespace holdfast { inline namespace v0_2 { namespace internal {

std::optional<Duration> StepTimes::turn(bool beside) {
  beside_ = beside;
  const Period past = std::exchange(now_, {});
  if (beside) {
    // Too few steps without a write say nothing, so the last good measure stays.
    if (past.steps >= kFewestSteps) without_ = past;
    return std::nullopt;
  }
  // Needs steps without a write right before the window: speed changes over a run, so older ones are no
  // measure.
  if (past.steps == 0 || without_.steps == 0) return std::nullopt;
  const double mean = static_cast<double>(without_.time.count()) / static_cast<double>(without_.steps);
  return past.time - Duration(std::llround(mean * static_cast<double>(past.steps)));
}

}}}  // namespace holdfast::v0_2::internal
