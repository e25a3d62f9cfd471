// When to save: after so much time or so many steps, whichever comes first. Times count from the last save's
// start, so a slow disk cannot make saves queue.
//
// Threads: one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "holdfast/base/clock.h"

namespace holdfast::inline v1 {

// One trigger. `.every = 5min`, `.every = SaveEvery::steps(500)`, or a list of both.
struct SaveEvery {
  std::optional<Duration> time;
  std::optional<std::int64_t> step_count;

  SaveEvery() = default;
  template <class Rep, class Period>
  SaveEvery(std::chrono::duration<Rep, Period> t)
      : time(std::chrono::duration_cast<Duration>(t)) {}  // NOLINT
  static SaveEvery steps(std::int64_t count);
};

class SavePolicy {
 public:
  // UsageError for an interval that is not positive.
  SavePolicy(std::vector<SaveEvery> triggers, SteadyTime start, std::int64_t step);
  bool due(SteadyTime now, std::int64_t step) const;
  void saved(SteadyTime now, std::int64_t step);

 private:
  std::vector<SaveEvery> triggers_;
  SteadyTime last_time_;
  std::int64_t last_step_;
};

}  // namespace holdfast::inline v1
