#include "holdfast/checkpoint/internal/rank_ends.h"

#include <algorithm>
#include <string>
#include <utility>

#include "holdfast/base/log.h"
#include "holdfast/base/text.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

constexpr char kOthersSleep[] = "another rank's machine";  // a source, too
constexpr Monitor::Which kNamedEnds{.named = true, .sleeps = Monitor::Sleeps::left_out};
constexpr Monitor::Which kSleeps{.sleeps = Monitor::Sleeps::alone};

}  // namespace

void RankEnds::hear_end(const Agreed& agreed) {
  Announced& announced = run_.outlook.announced();
  const SteadyTime now = run_.clock.now();
  const auto own = left_here(kEnds);
  const auto left = group_.left(now);
  const auto known = announced.others_end();
  // A difference within the clocks' ticks is no news.
  const Duration margin = known ? Duration::zero() : kSameTime;
  if (!left || (own && *own <= *left + margin)) {
    if (!known) return;
    announced.others_end(std::nullopt);
    return tell_news({.source = kOthers,
                      .kind = NoticeKind::withdrawn,
                      .text = "the end of another rank's machine is announced no more"});
  }
  const Duration known_left = known ? time_until(*known, now) : Duration::max();
  if (known && std::max(known_left - *left, *left - known_left) <= kSameTime) return;
  const Notice end{.source = kOthers,
                   .kind = NoticeKind::deadline,
                   .deadline = now + *left,
                   .text = "the end of another rank's machine is announced",
                   .guessed = !agreed.named_left,
                   .seen = now};
  announced.others_end(end);
  tell_news(end);
}

// It is saved for, and forbids nothing. Votes repeat it until the machine is awake.
void RankEnds::hear_sleep(const Agreed& agreed) {
  Announced& announced = run_.outlook.announced();
  const auto own = left_here(kSleeps);
  const bool theirs = agreed.sleep_left && !(own && *own <= *agreed.sleep_left + kSameTime);
  if (theirs == announced.others_sleep()) return;
  if (!theirs) {
    announced.others_sleep(std::nullopt);
    return tell_news({.source = kOthersSleep,
                      .kind = NoticeKind::withdrawn,
                      .text = "the hibernation of another rank's machine is announced no more"});
  }
  const SteadyTime now = run_.clock.now();
  const Notice sleep{.source = kOthersSleep,
                     .kind = NoticeKind::deadline,
                     .deadline = now + *agreed.sleep_left,
                     .text = "the hibernation of another rank's machine is announced",
                     .hibernates = true,
                     .guessed = true,
                     .seen = now};
  announced.others_sleep(sleep);
  tell_news(sleep);
}

void RankEnds::tell_news(const Notice& notice) {
  run_.ledger.notice(notice);
  const std::string left =
      notice.deadline ? ", " + format_duration(*notice.deadline - *notice.seen) + " left" : std::string();
  log_info("notice ({}): {}{}", notice.source, notice.text, left);
}

// From this rank's sources alone: an end heard from votes would otherwise keep itself alive.
std::optional<Duration> RankEnds::left_here(const Monitor::Which& which) const noexcept {
  const auto deadline = run_.monitor.earliest_deadline(which);
  if (!deadline) return std::nullopt;
  return time_until(*deadline, run_.clock.now());
}

void RankEnds::put_in(Vote& vote) const noexcept {
  vote.left = left_here(kEnds);
  // A guessed end forbids no save.
  vote.named_left = left_here(kNamedEnds);
  vote.sleep_left = left_here(kSleeps);
}

}}}  // namespace holdfast::v0_2::internal
