#include "holdfast/mirror/pace.h"

#include <algorithm>

namespace holdfast { inline namespace v0_2 {
namespace {

// How long a request of the supervisor may wait, because only poll() serves it.
constexpr Duration kPoll = std::chrono::milliseconds(100);

}  // namespace

void Pace::moved(std::uint64_t bytes) {
  poll();
  if (give_way_) give_way_();
  if (limit_ <= 0) return;
  const auto cost = std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(static_cast<double>(bytes) / (limit_ * 1e6)));
  // The work on this block is a part of its time. Time in which nothing moved is not saved up.
  const SteadyTime now = clock_.now();
  free_ = (free_ == SteadyTime{} ? now : std::max(free_, now - cost)) + cost;
  // poll() may lift the limit.
  while (limit_ > 0 && clock_.now() < free_) {
    const SteadyTime began = clock_.now();
    clock_.sleep_for(std::min<Duration>(kPoll, free_ - began));
    held_back_ += clock_.now() - began;
    poll();
  }
}

void Pace::wait(Duration duration) {
  const SteadyTime end = clock_.now() + duration;
  for (;;) {
    poll();
    const SteadyTime now = clock_.now();
    if (now >= end) return;
    clock_.sleep_for(std::min<Duration>(kPoll, end - now));
  }
}

}}  // namespace holdfast::v0_2
