#include "holdfast/format/internal/throttle.h"

#include <algorithm>
#include <chrono>

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// Short enough that a lifted limit takes effect soon, and that a deadline is not missed by much.
constexpr Duration kSlice = std::chrono::milliseconds(50);
constexpr std::uint64_t kLeastBlock = 256u << 10;  // smaller writes waste operations of the device
constexpr std::uint64_t kUnit = 4096;              // O_DIRECT writes whole blocks

}  // namespace

bool Throttle::lifted() const {
  // !(limit > 0), so that a NaN means no limit. Relaxed, because a little delay does no harm.
  return !(limit_ > 0) || (limit_lifted_ != nullptr && limit_lifted_->load(std::memory_order_relaxed));
}

std::uint64_t Throttle::block(std::uint64_t most) const {
  if (lifted()) return most;
  const double wanted = limit_ * 1e6 * std::chrono::duration<double>(kSlice).count();
  if (wanted >= static_cast<double>(most)) return most;
  return std::max(kLeastBlock, static_cast<std::uint64_t>(wanted) / kUnit * kUnit);
}

void Throttle::take(std::uint64_t bytes, const Stopped& stopped) {
  if (lifted()) return;
  SteadyTime turn;
  {
    const MutexLock lock(mutex_);
    // Time that nobody used is not saved up; otherwise a pause would allow a burst.
    turn = std::max(free_, clock_.now());
    const std::chrono::duration<double> takes(static_cast<double>(bytes) / (limit_ * 1e6));
    free_ = turn + std::chrono::duration_cast<Duration>(takes);
  }
  // In slices, because a deadline may lift the limit while this thread sleeps.
  for (SteadyTime now = clock_.now(); now < turn && !stopped && !lifted(); now = clock_.now()) {
    clock_.sleep_for(std::min<Duration>(turn - now, kSlice));
  }
}

}}}  // namespace holdfast::v0_2::internal
