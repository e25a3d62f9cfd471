#include "support/fake_clock.h"

#include <thread>
#include <utility>

namespace holdfast::test {
namespace {

// Any fixed moments work; zero would hide a missing initialisation.
constexpr SteadyTime kSteadyStart{std::chrono::hours(1000)};
constexpr WallTime kWallStart{std::chrono::seconds(1'750'000'000)};

}  // namespace

SteadyTime FakeClock::now() const {
  const std::lock_guard lock(mutex_);
  return kSteadyStart + elapsed_;
}

WallTime FakeClock::wall_now() const {
  const std::lock_guard lock(mutex_);
  return kWallStart + std::chrono::duration_cast<WallTime::duration>(elapsed_ + wall_shift_);
}

void FakeClock::sleep_for(Duration duration) {
  const Duration real = others_run_;
  if (real > Duration::zero()) std::this_thread::sleep_for(real);
  advance(duration);
}

void FakeClock::advance(Duration duration) {
  std::unique_lock lock(mutex_);
  const Duration end = elapsed_ + duration;
  while (!plans_.empty() && plans_.begin()->first <= end) {
    auto next = plans_.extract(plans_.begin());
    elapsed_ = std::max(elapsed_, next.key());
    lock.unlock();
    next.mapped()();
    lock.lock();
  }
  elapsed_ = std::max(elapsed_, end);
}

void FakeClock::shift_wall(Duration by) {
  const std::lock_guard lock(mutex_);
  wall_shift_ += by;
}

void FakeClock::sleep_machine(Duration duration) {
  const std::lock_guard lock(mutex_);
  wall_shift_ += duration;
  asleep_ += duration;
}

Duration FakeClock::asleep() const {
  const std::lock_guard lock(mutex_);
  return asleep_;
}

void FakeClock::plan(Duration after, std::function<void()> action) {
  const std::lock_guard lock(mutex_);
  plans_.emplace(elapsed_ + after, std::move(action));
}

Duration FakeClock::slept() const {
  const std::lock_guard lock(mutex_);
  return elapsed_;
}

}  // namespace holdfast::test
