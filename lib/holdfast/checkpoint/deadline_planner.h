// What to do at a step boundary while the machine's end is announced: a pure function of the moment, the
// notice, the measured costs and what is safe already. The same values give the same answer, so a replay on a
// fake clock plans as a run does.
//
//   train_on   A commit at once, as insurance. Then steps, as long as the deadline is further away than
//              `reserve`. Then the last commit, and a wait for the end without leaving. Where that commit
//              cannot end in time, steps until it can, or for ever: nothing is lost by them.
//   wait       A commit at once, then the wait.
//   exit       A commit at once, then out, with exit code 75.
//   callback   A function of the program chooses one of these when the notice is seen.
//
// A commit is begun only when it can be over before the deadline: what is left of a write in flight, and then
// the measured cost of this one. Otherwise the older checkpoint is kept, and `too_late` says so. While
// nothing is measured, or there is no older one, it is tried. A write in flight that takes longer than the
// costs say is the cost. A machine that lives a minute after its deadline is kept: the run goes on. One that
// is to hibernate gets its commit at once and goes on in any case; it may wake up in the middle of a step.
//
// Threads: pure. Errors: none.
#pragma once

#include <optional>

#include "holdfast/base/clock.h"
#include "holdfast/checkpoint/cost_model.h"

namespace holdfast::inline v1 {

enum class OnNotice { train_on, wait, exit, callback };

// What may come between two looks at the clock, and on the way from the last byte to the acknowledgement.
inline constexpr Duration kSpareTime = std::chrono::seconds(4);
// A machine that still lives so long after its deadline stays.
inline constexpr Duration kAliveAfter = std::chrono::seconds(60);

// From the moment at which training stops to the deadline: 1.5 commits, a step under way, the agreement of
// the ranks, and the spare time.
Duration reserve(const Costs& costs) noexcept;

struct Deadline {
  SteadyTime at{};
  bool hibernates = false;
};

// How the run stands at its newest step boundary.
struct Standing {
  bool covered = false;  // it is durable, or handed to the writer
  // A commit that began after the notice was seen is durable or handed to the writer.
  bool insured = false;
  // A write is in flight, for so long.
  std::optional<Duration> writing = {};
  // Nothing of the run is durable, and nothing is on its way: there is nothing to lose by a commit, whatever
  // it is said to cost.
  bool first = false;
};

enum class Move {
  train,        // the next step
  commit,       // commit this boundary; the next steps run while it is written
  last_commit,  // commit this boundary and wait
  wait,         // do nothing, look again soon
  stop,         // commit this boundary unless it is covered or too late, and leave
  go_on,        // the deadline has passed and the machine lives: forget the notice and train
};

struct Plan {
  Move move = Move::train;
  // This boundary is not covered and no commit of it could end in time: what is older stands.
  bool too_late = false;
  // With `train`: a save that falls due now is over before the last commit has to begin.
  bool room = true;
};

// `policy` is not `callback`.
Plan plan_for_deadline(SteadyTime now, const Deadline& deadline, const Costs& costs, const Standing& standing,
                       OnNotice policy) noexcept;
// The program was told to stop, until then at the latest if that is known. A deadline that has passed already
// tells nothing about the time that is left.
Plan plan_for_stop(SteadyTime now, std::optional<SteadyTime> deadline, const Costs& costs,
                   const Standing& standing) noexcept;

}  // namespace holdfast::inline v1
