// Speed over the last steps, and the remaining time at that speed.
//
// The window holds the last 100 steps, and at least the last 5 s: so fast steps are averaged, and slow ones
// still give a speed. Call pause() before an evaluation or a resume; time does not count until the next step.
// Errors: none. Threads: one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "holdfast/base/clock.h"
#include "holdfast/base/export.h"

namespace holdfast { inline namespace v0_2 {

class HOLDFAST_EXPORT Meter {
 public:
  explicit Meter(const Clock& clock = Clock::real());

  // `samples` were processed since the last call. The first call after the start or a pause only opens the
  // window, because it cannot know when its samples began, unless begin() was called.
  void step(std::int64_t samples);
  // Work begins now.
  void begin();
  void pause();

  // Total time of all steps so far.
  Duration worked() const { return worked_; }
  // Samples per second of work; 0 while unknown.
  double per_second() const;
  // nullopt while unknown.
  std::optional<Duration> time_left(double samples) const;

 private:
  struct Entry {
    Duration worked;  // total, at the end of this step
    std::int64_t samples;
  };

  const Clock& clock_;
  std::optional<SteadyTime> last_;  // end of the last step; nullopt while paused
  Duration worked_{};
  std::deque<Entry> window_;  // the front marks the start; its samples do not count
  std::int64_t samples_in_window_ = 0;
};

}}  // namespace holdfast::v0_2
