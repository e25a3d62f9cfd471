// How well a source can see its service, and when it asks again: counts of polls and failures, blind time,
// and pauses of 1, 2, 4, then 8 s after failures. After five refusals in a row the pause is 15 s if the
// service has ever answered, otherwise 5 min. It warns at the first failure, at most every 10 min; once more
// after `blind_after` or believed refusals; and it logs when the service answers again.
//
// Errors: bad_alloc. Threads: figures() by any; the other methods by the source's own thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "holdfast/base/mutex.h"
#include "holdfast/interruption/source.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class Sight {
 public:
  // `service`: such as "EC2's metadata service".
  Sight(Clock& clock, std::string service, Duration blind_after = kBlindAfter);

  void saw();
  void missed(std::string_view why);
  // Counts as missed(), until five in a row are believed.
  void refused(std::string_view why);
  bool failing() const;  // the last poll saw nothing
  // Time until the next poll.
  Duration interval(Duration usual) const;
  // Blind time includes the current blind period.
  SourceFigures figures() const;

 private:
  void missed(std::string_view why, bool refused);
  Duration interval_after_failure() const HOLDFAST_REQUIRES(mutex_);

  Clock& clock_;
  const std::string service_;
  const Duration blind_after_;
  mutable Mutex mutex_;
  SourceFigures figures_ HOLDFAST_GUARDED_BY(mutex_);
  SteadyTime last_sight_ HOLDFAST_GUARDED_BY(mutex_);
  int streak_ HOLDFAST_GUARDED_BY(mutex_) = 0;     // failures since `last_sight_`
  int refusals_ HOLDFAST_GUARDED_BY(mutex_) = 0;   // in a row
  bool seen_ HOLDFAST_GUARDED_BY(mutex_) = false;  // it has answered at least once
  bool said_ HOLDFAST_GUARDED_BY(mutex_) = false;
  bool warned_ HOLDFAST_GUARDED_BY(mutex_) = false;  // the warning about blindness was logged
  std::optional<SteadyTime> last_said_ HOLDFAST_GUARDED_BY(mutex_);
};

}}}  // namespace holdfast::v0_2::internal
