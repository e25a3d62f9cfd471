// A Clock that tests move. sleep_for does not wait: it moves the clock and runs the actions planned for that
// time.
//
// Threads: any. Actions run on the thread that moves the clock.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <mutex>

#include "holdfast/base/clock.h"

namespace holdfast::test {

class FakeClock final : public Clock {
 public:
  SteadyTime now() const override;
  WallTime wall_now() const override;
  Duration asleep() const override;
  void sleep_for(Duration duration) override;

  void advance(Duration duration);
  // Each sleep_for takes this much real time: other threads do meanwhile what they would do in a real sleep.
  void let_others_run(Duration real) { others_run_ = real; }
  // Moves the wall clock only; steady time stays.
  void shift_wall(Duration by);
  // The machine sleeps: its wall clock goes on, steady time stays.
  void sleep_machine(Duration duration);
  // Runs `action` when the clock passes `after` from now.
  void plan(Duration after, std::function<void()> action);
  Duration slept() const;  // total time that the clock was moved

 private:
  mutable std::mutex mutex_;
  Duration elapsed_{};
  Duration wall_shift_{};
  Duration asleep_{};
  std::multimap<Duration, std::function<void()>> plans_;
  std::atomic<Duration> others_run_{Duration::zero()};
};

}  // namespace holdfast::test
