#include "holdfast/interruption/internal/announced_end.h"

#include <utility>

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// Wall clock and steady clock drift apart, so a difference below this is the same end.
constexpr Duration kSameEnd = std::chrono::seconds(1);

SteadyTime end_after(SteadyTime from, Duration time) {
  return from + std::chrono::duration_cast<SteadyTime::duration>(time);
}

std::optional<Duration> left_until(WallTime time, WallTime now) {
  // A time in the past or far away is a mistake; the caller then uses its own promise.
  if (time <= now || time - now > kFarthestEnd) return std::nullopt;
  return time - now;
}

}  // namespace

std::optional<SteadyTime> believed(std::optional<WallTime> time, const Clock& clock,
                                   std::optional<WallTime> service_now) {
  if (!time) return std::nullopt;
  // The service named the time by its own clock.
  auto left = service_now ? left_until(*time, *service_now) : std::nullopt;
  if (!left) left = left_until(*time, clock.wall_now());
  if (!left) return std::nullopt;
  return end_after(clock.now(), *left);
}

AnnouncedEnd::AnnouncedEnd(Clock& clock, std::string_view name, Duration unknown)
    : clock_(clock), name_(name), unknown_(unknown) {}

void AnnouncedEnd::update(const ListedEnd& listed, SteadyTime now) {
  const auto [at, fresh] = ends_.try_emplace(listed.event);
  End& end = at->second;
  // The machine has outlived this event, and it now names another end.
  const bool again = !fresh && now > end_after(end.earliest, kAliveAfter) && listed.when > now;
  const bool said = end.listed != nullptr;  // this list has an earlier entry of the same name
  const bool no_sleep_after_all = end.hibernates && !listed.hibernates;
  if (fresh || again || no_sleep_after_all) {
    end.earliest = listed.when.value_or(end_after(now, unknown_));
    end.hibernates = listed.hibernates;
    end.listed = &listed;
    return;
  }
  // A time that was believed stays believed after it has passed.
  const SteadyTime when = listed.when.value_or(end.earliest);
  // Only an earlier end replaces a known one, so an end that slides gains nothing.
  const bool earlier = when + kSameEnd <= end.earliest;
  if (earlier) end.earliest = when;
  if (earlier || !said) end.listed = &listed;
  end.hibernates = end.hibernates && listed.hibernates;
}

const AnnouncedEnd::End* AnnouncedEnd::earliest(SteadyTime now) const {
  const End* found = nullptr;
  for (const auto& [event, end] : ends_) {
    if (now > end_after(end.earliest, kAliveAfter)) continue;
    if (found == nullptr || end.earliest < found->earliest) found = &end;
  }
  return found;
}

void AnnouncedEnd::coming(const std::vector<ListedEnd>& listed, std::vector<Notice>& news) {
  const SteadyTime now = clock_.now();
  for (auto& [event, end] : ends_) end.listed = nullptr;
  for (const ListedEnd& end : listed) update(end, now);
  // What the service no longer lists is over.
  std::erase_if(ends_, [](const auto& known) { return known.second.listed == nullptr; });
  const End* const end = earliest(now);
  if (end == nullptr) return;

  const bool later = told_ && end->earliest >= told_->deadline + kSameEnd;
  const bool earlier = told_ && end->earliest + kSameEnd <= told_->deadline;
  const bool other = told_ && end->hibernates != told_->hibernates;
  // Nothing new. But a notice that was lost for lack of memory is told again.
  if (told_ && !later && !earlier && !other && arrived_) return;
  const bool replaces = later || (told_ && !arrived_ && told_->replaces) || (!told_ && lost_withdrawal());
  // Consumers keep the earliest deadline they heard, so a later one needs a withdrawal first.
  if (replaces) {
    news.push_back({.source = name_,
                    .kind = NoticeKind::withdrawn,
                    .text = "what was announced before is gone or outlived",
                    .seen = now});
  }
  news.push_back({.source = name_,
                  .kind = NoticeKind::deadline,
                  .deadline = end->earliest,
                  .text = end->listed->text,
                  .hibernates = end->hibernates,
                  .seen = now});
  told_ = {.deadline = end->earliest, .hibernates = end->hibernates, .replaces = replaces};
  withdrawn_ = false;
  // Set when the list is complete: tell_again() clears it if the caller loses the list.
  arrived_ = true;
}

void AnnouncedEnd::nothing(std::string text, std::vector<Notice>& news) {
  if (!told()) return;
  news.push_back(
      {.source = name_, .kind = NoticeKind::withdrawn, .text = std::move(text), .seen = clock_.now()});
  // After the notice is made, which may throw: the next call then withdraws again.
  ends_.clear();
  told_.reset();
  withdrawn_ = true;
  arrived_ = true;
}

}}}  // namespace holdfast::v0_2::internal
