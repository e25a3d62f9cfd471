// The ends and stops that one rank knows: those of its own sources, and those that other ranks told in votes.
// Plain data; docs/interruption_sources.md#how-notices-combine has the rules.
//
//   RunEnds ends;
//   ends.hear({.source = 1, .kind = NoticeKind::deadline, .at = now + 2min}, now);
//   if (const RunEnds::End* end = ends.standing()) …            // the end that the run plans for
//   const SteadyTime named = ends.earliest({.named = true, .after = now});   // it forbids later saves
//
// Errors: std::bad_alloc. Threads: a value.
#pragma once

#include <optional>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/interruption/notice.h"
#include "holdfast/planning/deadline_planner.h"

namespace holdfast { inline namespace v0_2 { namespace run {

inline constexpr SteadyTime kNever = SteadyTime::max();
inline constexpr Duration kNoEnd = Duration::max();

// A source of this rank has news. The shell has asked the program for `policy` if that is OnNotice::callback.
struct NoticeHeard {
  int source = 0;
  NoticeKind kind = NoticeKind::deadline;
  SteadyTime at = kNever;
  bool guessed = false;
  bool hibernates = false;
  OnNotice policy = OnNotice::train_on;
  bool gives_up = false;  // with a stop: the run stops because no save succeeds
};

// OnNotice::callback: the program's answer to the end of `source` that was first seen then. It changes
// nothing if that end is withdrawn meanwhile.
struct NoticeAnswered {
  int source = 0;
  SteadyTime seen{};
  OnNotice policy = OnNotice::train_on;
};

// What all votes told about ends: the time left at the vote; kNoEnd: no rank has announced one.
struct EndsLeft {
  Duration any = kNoEnd;    // until the earliest end
  Duration named = kNoEnd;  // until the earliest that somebody named
  Duration sleep = kNoEnd;  // until the earliest hibernation
};

class RunEnds {
 public:
  static constexpr int kAnotherRank = -1;  // the source of its end, and of its sleep
  static constexpr int kSleepOfAnotherRank = -2;

  struct End {
    int source = 0;
    SteadyTime at{};
    SteadyTime seen{};
    bool guessed = false;
    bool hibernates = false;
    OnNotice policy = OnNotice::train_on;
    bool dismissed = false;  // the machine outlived it; the source may repeat it
  };

  RunEnds() { own_.reserve(8); }  // as many sources as a run has: hear() then needs no memory

  void hear(const NoticeHeard& notice, SteadyTime now);
  void answer(const NoticeAnswered& answered);
  // A vote of all ranks, posted at `posted`. `policy`: what the run does about the end of another rank's
  // machine.
  void hear_others(const EndsLeft& left, SteadyTime posted, SteadyTime now, OnNotice policy);
  // All ranks stop: ends that have passed say nothing about the time left.
  void hear_stop(SteadyTime now);

  // Ignores ends up to `until`, and with `woken` all hibernations.
  void dismiss(SteadyTime until, bool woken = false);
  // Dismisses ends that passed kAliveAfter ago. True: there was one.
  bool drop_outlived(SteadyTime now);

  // Something that this rank's own sources brought, and the training must look at.
  bool pending() const;
  bool stop_requested() const { return own_stop_.told || others_stop_.told; }
  // The end that the run plans for; null: none. A hibernation counts only if there is no other.
  const End* standing() const;
  const End* own_standing() const;
  // Of another rank's machine; null: none is announced.
  const End* others_end() const { return others_end_ ? &*others_end_ : nullptr; }
  const End* others_sleep() const { return others_sleep_ ? &*others_sleep_ : nullptr; }
  bool others_stop() const { return others_stop_.told; }
  bool own_stop() const { return own_stop_.told; }

  // Of the ends and stops with these properties, when the earliest comes; kNever: there is none. Ends that
  // had passed when the run was told to stop do not count.
  enum class Sleeps { count, left_out, alone };
  struct Which {
    bool named = false;
    Sleeps sleeps = Sleeps::count;
    SteadyTime after = SteadyTime::min();
    bool own_only = false;
  };
  SteadyTime earliest(const Which& which) const;
  // The part of this rank's vote: from its own sources alone, because an end that was heard from votes would
  // otherwise keep itself alive.
  EndsLeft own_left(SteadyTime now) const;

  // Requests that wait until they are taken.
  bool take_save_request();
  bool take_risk();

 private:
  struct Stop {
    bool told = false;
    SteadyTime seen = kNever;
    SteadyTime at = kNever;
    SteadyTime named = kNever;
  };

  void add(const End& end);

  std::vector<End> own_;
  std::optional<End> others_end_;
  SteadyTime others_named_ = kNever;
  std::optional<End> others_sleep_;
  Stop own_stop_, others_stop_;
  bool save_requested_ = false;
  bool at_risk_ = false;
};

}}}  // namespace holdfast::v0_2::run
