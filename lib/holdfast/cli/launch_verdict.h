// What the endings of all ranks make of a run: one exit code, as one process would have given it.
//
//   all 0                    0
//   all 75                   75: every rank says that what it acknowledged stands
//   0 and 75                 70: the ranks disagree about whether the run is complete
//   anything else            that of the rank that failed first
//
// Ranks that ended after they were told to, because another had failed, count for nothing.
//
// Threads: pure functions.
#pragma once

#include <span>
#include <string>

#include "holdfast/cli/attended_child.h"

namespace holdfast::inline v1 {

struct RankEnding {
  int rank = 0;
  Ending ending = {};
  bool told = false;  // to end, because another rank had failed
};

bool is_failure(const Ending& ending);  // neither 0 nor 75

struct LaunchVerdict {
  int code = 0;
  std::string text;  // one line for the log
};

// In the order in which they ended. Requires at least one that was not told.
LaunchVerdict verdict_of(std::span<const RankEnding> endings);

}  // namespace holdfast::inline v1
