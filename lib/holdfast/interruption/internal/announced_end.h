// What one source has told about the end of its machine, so that it tells each thing once: the earliest end
// of all that the service has named, until the service takes it back.
//
// Threads: one.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "holdfast/base/clock.h"
#include "holdfast/interruption/notice.h"

namespace holdfast::inline v1::internal {

// Times that are further away are not believed.
inline constexpr Duration kFarthestEnd = std::chrono::hours(24 * 365);

// When that is on the steady clock; nothing for a time that has passed or is too far away. `service_now` is
// the service's own wall clock, where it has told it: the earlier one counts, as this machine's clock may be
// wrong.
std::optional<SteadyTime> believed(std::optional<WallTime> time, const Clock& clock,
                                   std::optional<WallTime> service_now = {});

class AnnouncedEnd {
 public:
  // `name`: the source's. `unknown`: how long after the first sight the end is where no time is believed.
  AnnouncedEnd(Clock& clock, std::string_view name, Duration unknown);

  // The service says that it is coming. A notice when that is new: the first of it, an earlier one, or one of
  // another kind.
  std::optional<Notice> coming(std::optional<SteadyTime> when, bool hibernates, std::string text);
  // The service says that nothing is. A notice when it said otherwise before.
  std::optional<Notice> nothing(std::string text);
  bool told() const { return first_seen_.has_value(); }
  // What was told did not arrive (no memory): the next coming() tells it again.
  void tell_again() { arrived_ = false; }

 private:
  Clock& clock_;
  std::string name_;
  Duration unknown_;
  std::optional<SteadyTime> first_seen_;
  SteadyTime earliest_{};
  bool hibernates_ = false;
  bool arrived_ = true;
};

}  // namespace holdfast::inline v1::internal
