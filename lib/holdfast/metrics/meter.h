// Speed over the last steps, and the time left at that speed.
//
// The window holds the last 100 steps but not less than the last 5 s of them, so that quick steps are
// smoothed and slow ones still tell something. Pauses (an evaluation, a resume) are left out: call pause()
// before and the clock stands still until the next step() begins anew. Threads: one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "holdfast/base/clock.h"

namespace holdfast::inline v1 {

class Meter {
 public:
  explicit Meter(const Clock& clock = Clock::real());

  // `samples` were processed since the last call. The first call after the start or a pause opens the window
  // without knowing when its samples began, unless begin() said so.
  void step(std::int64_t samples);
  // Work begins now.
  void begin();
  void pause();

  // The time of all steps so far.
  Duration worked() const { return worked_; }
  // Samples per second of work; 0 before anything is known.
  double per_second() const;
  // nullopt before anything is known.
  std::optional<Duration> time_left(std::int64_t samples) const;

 private:
  struct Entry {
    Duration worked;  // in all, at the end of this step
    std::int64_t samples;
  };

  const Clock& clock_;
  std::optional<SteadyTime> last_;  // end of the last step; nullopt while paused
  Duration worked_{};
  std::deque<Entry> window_;  // front: where the window begins; its own samples do not count
  std::int64_t samples_in_window_ = 0;
};

}  // namespace holdfast::inline v1
