// The interface to time. Every component that waits or measures takes a Clock; tests pass a fake one.
//
// Decisions (deadlines, intervals) use steady time. Wall time is only shown to people or recorded.
// Threads: all methods may be called from any thread.
#pragma once

#include <chrono>

#include "holdfast/base/export.h"

namespace holdfast { inline namespace v0_2 {

using SteadyTime = std::chrono::steady_clock::time_point;
using WallTime = std::chrono::system_clock::time_point;
using Duration = std::chrono::nanoseconds;

// A machine or a job that lives this long after its announced end is assumed to live on.
inline constexpr Duration kAliveAfter = std::chrono::seconds(60);

// The time from `now` until `end`; zero if the end has passed.
constexpr Duration time_until(SteadyTime end, SteadyTime now) {
  return end > now ? Duration(end - now) : Duration::zero();
}

class HOLDFAST_EXPORT Clock {
 public:
  virtual ~Clock() = default;
  virtual SteadyTime now() const = 0;
  virtual WallTime wall_now() const = 0;
  // How long the machine has slept since it started; steady time stands still meanwhile. Only differences
  // count. A clock that cannot tell returns 0.
  virtual Duration asleep() const { return Duration::zero(); }
  virtual void sleep_for(Duration duration) = 0;  // blocks; returns at once unless it is positive

  // The machine's clocks. The object lives as long as the process.
  static Clock& real();
};

}}  // namespace holdfast::v0_2
