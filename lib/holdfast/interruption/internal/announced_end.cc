#include "holdfast/interruption/internal/announced_end.h"

#include <algorithm>
#include <utility>

namespace holdfast::inline v1::internal {
namespace {

// The wall clock and the steady one drift against each other: the same time is not news.
constexpr Duration kSameEnd = std::chrono::seconds(1);

SteadyTime after(SteadyTime from, Duration time) {
  return from + std::chrono::duration_cast<SteadyTime::duration>(time);
}

std::optional<Duration> left_until(WallTime time, WallTime now) {
  if (time <= now || time - now > kFarthestEnd) return std::nullopt;
  return time - now;
}

}  // namespace

std::optional<SteadyTime> believed(std::optional<WallTime> time, const Clock& clock,
                                   std::optional<WallTime> service_now) {
  if (!time) return std::nullopt;
  auto left = left_until(*time, clock.wall_now());
  if (const auto by_service = service_now ? left_until(*time, *service_now) : std::nullopt) {
    left = left ? std::min(*left, *by_service) : *by_service;
  }
  if (!left) return std::nullopt;
  return after(clock.now(), *left);
}

AnnouncedEnd::AnnouncedEnd(Clock& clock, std::string_view name, Duration unknown)
    : clock_(clock), name_(name), unknown_(unknown) {}

std::optional<Notice> AnnouncedEnd::coming(std::optional<SteadyTime> when, bool hibernates,
                                           std::string text) {
  const SteadyTime now = clock_.now();
  const bool first = !first_seen_;
  if (first) first_seen_ = now;
  // A time that was believed once does not count for less when it has passed.
  const SteadyTime end = when.value_or(first ? after(now, unknown_) : earliest_);
  const bool same = !first && end + kSameEnd > earliest_ && hibernates == hibernates_;
  if (same && std::exchange(arrived_, true)) return std::nullopt;
  earliest_ = first ? end : std::min(earliest_, end);
  hibernates_ = hibernates;
  return Notice{.source = name_,
                .kind = NoticeKind::deadline,
                .deadline = earliest_,
                .text = std::move(text),
                .hibernates = hibernates,
                .seen = now};
}

std::optional<Notice> AnnouncedEnd::nothing(std::string text) {
  if (!first_seen_) return std::nullopt;
  Notice notice{
      .source = name_, .kind = NoticeKind::withdrawn, .text = std::move(text), .seen = clock_.now()};
  first_seen_.reset();
  return notice;
}

}  // namespace holdfast::inline v1::internal
