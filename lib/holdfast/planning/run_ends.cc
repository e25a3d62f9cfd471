#include "holdfast/planning/run_ends.h"

#include <algorithm>
#include <new>
#include <utility>

#include "holdfast/planning/internal/planted.h"

namespace holdfast { inline namespace v0_2 { namespace run {
namespace {

// Two votes about the same end may differ by less than this.
constexpr Duration kSameTime = std::chrono::seconds(1);

SteadyTime when(SteadyTime posted, Duration left) { return left == kNoEnd ? kNever : posted + left; }
Duration until(SteadyTime end, SteadyTime now) { return end == kNever ? kNoEnd : time_until(end, now); }

// The earlier one counts, unless it has passed.
void lower(SteadyTime& end, SteadyTime heard, SteadyTime now) {
  end = end <= now ? heard : std::min(end, heard);
}

bool same(SteadyTime one, SteadyTime other) { return std::max(one - other, other - one) <= kSameTime; }

}  // namespace

void RunEnds::hear(const NoticeHeard& notice, SteadyTime now) {
  const auto known =
      std::find_if(own_.begin(), own_.end(), [&](const End& end) { return end.source == notice.source; });
  switch (notice.kind) {
    case NoticeKind::checkpoint_now:
      save_requested_ = true;
      return;
    case NoticeKind::at_risk:
      at_risk_ = true;
      return;
    case NoticeKind::stop:
      if (!std::exchange(own_stop_.told, true)) own_stop_.seen = now;
      lower(own_stop_.at, notice.at, now);
      if (!notice.guessed) lower(own_stop_.named, notice.at, now);
      return;
    case NoticeKind::withdrawn:
      if (known != own_.end() && !planted(Planted::forgets_a_withdrawal)) own_.erase(known);
      return;
    case NoticeKind::thawed:
      return;
    case NoticeKind::deadline:
      break;
  }
  const bool sleeps = notice.hibernates && !planted(Planted::takes_a_sleep_for_an_end);
  const End end{.source = notice.source,
                .at = notice.at,
                .seen = now,
                .guessed = notice.guessed,
                .hibernates = sleeps,
                .policy = notice.policy};
  if (known == own_.end()) {
    add(end);
  } else if (known->dismissed) {
    // A source repeats what was dismissed; only a later end, or an end after a sleep, is news.
    if (end.at > known->at || (known->hibernates && !end.hibernates)) *known = end;
  } else if (known->at <= now) {
    *known = end;  // what has passed hides nothing that the source tells now
  } else {
    // An end counts more than a sleep, and a named time more than a guess; of two such the earlier counts.
    known->hibernates = known->hibernates && end.hibernates;
    known->policy = end.policy;
    if (known->guessed == end.guessed ? end.at < known->at : known->guessed) {
      known->at = end.at;
      known->guessed = end.guessed;
    }
  }
}

void RunEnds::answer(const NoticeAnswered& answered) {
  const auto learn = [&](End& end) {
    if (end.source == answered.source && end.seen == answered.seen) end.policy = answered.policy;
  };
  for (End& end : own_) learn(end);
  if (others_end_) learn(*others_end_);
  if (others_sleep_) learn(*others_sleep_);
}

// Without memory for another source, the first one's end comes as early.
void RunEnds::add(const End& end) {
  try {
    own_.push_back(end);
  } catch (const std::bad_alloc&) {
    own_.front().at = own_.front().dismissed ? end.at : std::min(own_.front().at, end.at);
    own_.front().dismissed = false;
  }
}

void RunEnds::hear_others(const EndsLeft& left, SteadyTime posted, SteadyTime now, OnNotice policy) {
  if (planted(Planted::ignores_ends_of_others)) return;
  const SteadyTime end = when(posted, left.any);
  const SteadyTime named = when(posted, left.named);
  const SteadyTime own = earliest({.sleeps = Sleeps::left_out, .own_only = true});
  const SteadyTime own_named = earliest({.named = true, .sleeps = Sleeps::left_out, .own_only = true});
  others_named_ = named < own_named ? named : kNever;
  // A difference within the clocks' ticks is no news.
  if (end == kNever || own <= end || (!others_end_ && own != kNever && own - end <= kSameTime)) {
    others_end_.reset();
  } else if (!others_end_ || !same(others_end_->at, end)) {
    // An end that only comes earlier is the same notice, and keeps the answer to it.
    const bool earlier = others_end_ && end < others_end_->at;
    // The earliest end is a guess unless it is the one that somebody named.
    const bool guessed = planted(Planted::names_the_guess_of_another) ? named == kNever : named > end;
    others_end_ = End{.source = kAnotherRank,
                      .at = end,
                      .seen = earlier ? others_end_->seen : now,
                      .guessed = guessed,
                      .policy = earlier ? others_end_->policy : policy};
  }
  // A sleep of another rank is saved for and forbids nothing; votes repeat it until that machine is awake.
  const SteadyTime sleep = when(posted, left.sleep);
  const SteadyTime own_sleep = earliest({.sleeps = Sleeps::alone, .own_only = true});
  if (sleep == kNever || (own_sleep != kNever && own_sleep <= sleep + kSameTime)) {
    others_sleep_.reset();
  } else if (!others_sleep_) {
    others_sleep_ = End{.source = kSleepOfAnotherRank,
                        .at = sleep,
                        .seen = now,
                        .guessed = true,
                        .hibernates = true,
                        .policy = policy};
  }
}

void RunEnds::hear_stop(SteadyTime now) {
  dismiss(now);
  others_stop_ = {.told = true, .seen = now};
}

void RunEnds::dismiss(SteadyTime until_then, bool woken) {
  for (End& end : own_) end.dismissed = end.dismissed || (woken && end.hibernates) || end.at <= until_then;
  if (others_end_ && others_end_->at <= until_then) others_end_.reset();
  if (others_sleep_ && (woken || others_sleep_->at <= until_then)) others_sleep_.reset();
}

bool RunEnds::drop_outlived(SteadyTime now) {
  bool dropped = false;
  while (const End* const end = standing()) {
    if (now < end->at + kAliveAfter || planted(Planted::never_outlives_an_end)) break;
    dismiss(now - kAliveAfter);
    dropped = true;
  }
  return dropped;
}

bool RunEnds::pending() const {
  return stop_requested() || save_requested_ || at_risk_ ||
         std::any_of(own_.begin(), own_.end(), [](const End& end) { return !end.dismissed; });
}

const RunEnds::End* RunEnds::own_standing() const {
  const End* found = nullptr;
  for (const End& end : own_) {
    if (end.dismissed) continue;
    // After a hibernation the run goes on, after an end it does not.
    if (found == nullptr || (found->hibernates && !end.hibernates) ||
        (found->hibernates == end.hibernates && end.at < found->at)) {
      found = &end;
    }
  }
  return found;
}

const RunEnds::End* RunEnds::standing() const {
  const End* const own = own_standing();
  if (others_end_ && (own == nullptr || own->hibernates || others_end_->at < own->at)) return &*others_end_;
  if (own != nullptr) return own;
  return others_sleep_ ? &*others_sleep_ : nullptr;
}

SteadyTime RunEnds::earliest(const Which& which) const {
  SteadyTime first = kNever;
  const auto consider_at = [&](SteadyTime at) {
    if (at > which.after) first = std::min(first, at);
  };
  const SteadyTime stopped = std::min(own_stop_.seen, others_stop_.seen);
  const auto consider = [&](const End& end) {
    if (end.dismissed || (which.named && end.guessed)) return;
    if (which.sleeps != Sleeps::count && end.hibernates != (which.sleeps == Sleeps::alone)) return;
    if (stopped == kNever || end.at > stopped) consider_at(end.at);
  };
  if (which.sleeps != Sleeps::alone) consider_at(which.named ? own_stop_.named : own_stop_.at);
  for (const End& end : own_) consider(end);
  if (which.own_only) return first;
  if (which.named && (stopped == kNever || others_named_ > stopped)) {
    consider_at(others_named_);
  }
  if (others_end_) consider(*others_end_);
  if (others_sleep_) consider(*others_sleep_);
  return first;
}

EndsLeft RunEnds::own_left(SteadyTime now) const {
  return {.any = until(earliest({.sleeps = Sleeps::left_out, .own_only = true}), now),
          .named = until(earliest({.named = true, .sleeps = Sleeps::left_out, .own_only = true}), now),
          .sleep = until(earliest({.sleeps = Sleeps::alone, .own_only = true}), now)};
}

bool RunEnds::take_save_request() {
  return planted(Planted::serves_a_request_twice) ? save_requested_ : std::exchange(save_requested_, false);
}

bool RunEnds::take_risk() { return std::exchange(at_risk_, false); }

}}}  // namespace holdfast::v0_2::run
