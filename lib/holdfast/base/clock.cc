#include "holdfast/base/clock.h"

#include <time.h>

#include <thread>

namespace holdfast { inline namespace v0_2 {
namespace {

class RealClock final : public Clock {
 public:
  // As steady_clock::now(), without the way through another library: each step of a training reads it, with
  // cold caches.
  SteadyTime now() const override {
    timespec time{};
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    return SteadyTime(std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec));
  }
  WallTime wall_now() const override { return std::chrono::system_clock::now(); }
  void sleep_for(Duration duration) override { std::this_thread::sleep_for(duration); }
};

}  // namespace

Clock& Clock::real() {
  // A function's static object: it exists even if a constructor before main() asks for the time.
  static RealClock clock;
  return clock;
}

}}  // namespace holdfast::v0_2
