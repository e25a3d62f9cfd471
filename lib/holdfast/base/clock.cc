#include "holdfast/base/clock.h"

#include <time.h>

#include <thread>

namespace holdfast { inline namespace v0_2 {
namespace {

class RealClock final : public Clock {
 public:
  // As steady_clock::now(), without the way through another library: each step of a training reads it, with
  // cold caches.
  SteadyTime now() const override { return SteadyTime(read(CLOCK_MONOTONIC)); }
  WallTime wall_now() const override { return std::chrono::system_clock::now(); }
  Duration asleep() const override { return read(CLOCK_BOOTTIME) - read(CLOCK_MONOTONIC); }
  void sleep_for(Duration duration) override { std::this_thread::sleep_for(duration); }

 private:
  static Duration read(clockid_t clock) {
    timespec time{};
    ::clock_gettime(clock, &time);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  }
};

}  // namespace

Clock& Clock::real() {
  // A function's static object: it exists even if a constructor before main() asks for the time.
  static RealClock clock;
  return clock;
}

}}  // namespace holdfast::v0_2
