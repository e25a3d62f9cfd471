// What to do at a step boundary while the machine's end is announced. A pure function of moment, notice,
// costs and saved steps: a replay on a fake clock plans exactly as a run does.
//
//   train_on   Commit at once, as insurance. Train until `reserve` before the deadline. Commit, and wait.
//   wait       Commit at once, then wait for the end.
//   exit       Commit at once, then end with exit code 75.
//   callback   The program's function chooses one of these when the notice is seen.
//
// A commit begins only if it can end before a deadline that somebody named (else `too_late`). With a mirror,
// the last one begins early enough to be home (else `not_home`). Rules: docs/design.md#before-a-deadline.
//
// Errors: none. Threads: pure.
#pragma once

#include <optional>

#include "holdfast/base/clock.h"
#include "holdfast/base/export.h"
#include "holdfast/planning/cost_model.h"

namespace holdfast { inline namespace v0_2 {

enum class OnNotice { train_on, wait, exit, callback };

// Covers the time between two readings of the clock, and from the last byte to the acknowledgement.
inline constexpr Duration kSpareTime = std::chrono::seconds(4);

// Time from the end of training to the deadline: 1.5 commits, the current step, the ranks' agreement, and the
// spare time. The factor 1.5 allows for a slow commit.
HOLDFAST_EXPORT Duration reserve(const Costs& costs) noexcept;

struct Deadline {
  SteadyTime at{};
  bool hibernates = false;
  bool guessed = false;  // nobody named it, so a commit that may not fit is tried
};

// The state of the run at its newest step boundary.
struct Standing {
  bool covered = false;  // this boundary is durable, or handed to the writer
  // A commit that began after the notice was seen is durable, or handed to the writer.
  bool insured = false;
  // Age of the write in flight, if there is one.
  std::optional<Duration> writing = {};
  // Until the mirror has brought home all that is durable here; zero: it has.
  Duration going_home{};
};

enum class Move {
  train,        // run the next step
  commit,       // commit this boundary; training continues during the write
  last_commit,  // commit this boundary, then wait
  wait,         // do nothing, and plan again soon
  stop,         // commit this boundary unless it is covered or too late, then end
  go_on,        // the machine outlived the deadline: forget the notice, and train
};

struct Plan {
  Move move = Move::train;
  // This boundary is not covered, and no commit of it can end in time. The older checkpoint stands.
  bool too_late = false;
  // With `train`: a save that falls due now ends before the last commit must begin.
  bool room = true;
  // A last move, and this boundary cannot be home by the deadline. What is home already stands.
  bool not_home = false;

  // The training stands still until the machine ends, or the notice is withdrawn.
  bool pauses() const noexcept { return move == Move::last_commit || move == Move::wait; }
  // No step follows this boundary, unless the notice is withdrawn: a save of it is the last one.
  bool is_last() const noexcept { return move == Move::stop || pauses(); }
};

// False if a mirror brings checkpoints home, and this boundary, covered or committed now, is not home by
// then.
HOLDFAST_EXPORT bool is_home_by(SteadyTime deadline, SteadyTime now, const Costs& costs,
                                const Standing& standing) noexcept;

// Requires that `policy` is not `callback`.
HOLDFAST_EXPORT Plan plan_for_deadline(SteadyTime now, const Deadline& deadline, const Costs& costs,
                                       const Standing& standing, OnNotice policy) noexcept;
// What is left of `plan` if an end other than the one planned for forbids a commit.
HOLDFAST_EXPORT Plan without_commit(Plan plan, const Standing& standing, OnNotice policy) noexcept;
// The program was told to stop, at the latest by `deadline` if that is known. A deadline that has passed says
// nothing about the remaining time.
HOLDFAST_EXPORT Plan plan_for_stop(SteadyTime now, std::optional<SteadyTime> deadline, const Costs& costs,
                                   const Standing& standing) noexcept;

}}  // namespace holdfast::v0_2
