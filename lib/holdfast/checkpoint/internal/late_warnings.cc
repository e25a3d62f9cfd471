#include "holdfast/checkpoint/internal/late_warnings.h"

#include <string>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

void LateWarnings::too_late(const Reached& at) noexcept {
  if (std::exchange(told_late_, true)) return;
  const std::string too_late = text_or_out_of_memory([&] {
    const Costs known = costs_.costs();
    std::string text = "no time for a save of step " + std::to_string(at.step);
    if (known.commit) text += ", which takes about " + format_duration(*known.commit);
    if (const auto left = announced_.time_left(clock_.now())) text += ": " + format_duration(*left) + " left";
    return text;
  });
  if (at.durable >= 0) {
    log_warning("{}; step {} is the newest that is durable", too_late, at.durable);
  } else {
    log_warning("{}; nothing of this run is durable", too_late);
  }
}

void LateWarnings::no_room(std::int64_t step, const Plan& plan) noexcept {
  if (plan.move != Move::train || plan.room || plan.too_late) return;
  if (std::exchange(told_no_room_, true)) return;
  const std::string left = text_or_out_of_memory([&] {
    const auto time = announced_.time_left(clock_.now());
    return time ? ", " + format_duration(*time) + " left," : std::string();
  });
  log_warning(
      "the save that was asked for at step {} waits: before the announced end{} only the last save has time",
      step, left);
}

void LateWarnings::not_home(const Reached& at) noexcept {
  if (!at.home || std::exchange(told_not_home_, true)) return;
  const std::string late = text_or_out_of_memory([&] {
    std::string text = "step " + std::to_string(at.step) + " will not be home in time";
    if (const auto took = costs_.costs().home) text += ": the way takes about " + format_duration(*took);
    if (const auto left = announced_.time_left(clock_.now())) text += ", " + format_duration(*left) + " left";
    return text;
  });
  if (*at.home >= 0) {
    log_warning("{}; step {} is the newest that is home", late, *at.home);
  } else {
    log_warning("{}; nothing of this run is home", late);
  }
}

}}}  // namespace holdfast::v0_2::internal
