// A Clock that tests move. sleep_for does not wait: it moves the clock, and runs what was planned meanwhile.
//
// Threads: any. Plans run on the thread that moves the clock.
#pragma once

#include <functional>
#include <map>
#include <mutex>

#include "holdfast/base/clock.h"

namespace holdfast::test {

class FakeClock final : public Clock {
 public:
  SteadyTime now() const override;
  WallTime wall_now() const override;
  void sleep_for(Duration duration) override { advance(duration); }

  void advance(Duration duration);
  // The wall clock jumps; steady time does not notice.
  void shift_wall(Duration by);
  // Runs `action` when the clock passes `after` from now.
  void plan(Duration after, std::function<void()> action);
  Duration slept() const;  // how far the clock was moved in all

 private:
  mutable std::mutex mutex_;
  Duration elapsed_{};
  Duration wall_shift_{};
  std::multimap<Duration, std::function<void()>> plans_;
};

}  // namespace holdfast::test
