#include "holdfast/base/clock.h"

#include <thread>

namespace holdfast { inline namespace v0_2 {
namespace {

class RealClock final : public Clock {
 public:
  SteadyTime now() const override { return std::chrono::steady_clock::now(); }
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
