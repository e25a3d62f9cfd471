// Time as a seam. Everything in Holdfast that waits or measures is handed a Clock; tests hand it a fake.
//
// Steady time decides (deadlines, intervals); wall time is only ever shown to people or recorded.
// Threads: all methods may be called from any thread.
#pragma once

#include <chrono>

namespace holdfast::inline v1 {

using SteadyTime = std::chrono::steady_clock::time_point;
using WallTime = std::chrono::system_clock::time_point;
using Duration = std::chrono::nanoseconds;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual SteadyTime now() const = 0;
  virtual WallTime wall_now() const = 0;
  virtual void sleep_for(Duration duration) = 0;

  // The machine's clocks. Lives for the whole process.
  static Clock& real();
};

}  // namespace holdfast::inline v1
