// Combines the endings of all ranks into one exit code, as one process would have returned it.
//
//   all 0                    0
//   all 75                   75: every rank says that its acknowledged checkpoints stand
//   0 and 75                 70: the ranks disagree about whether the run is complete
//   anything else            the code of the rank that failed first
//
// Ranks that were told to end because another had failed do not count.
//
// Errors: none. Threads: pure functions.
#pragma once

#include <span>
#include <string>

#include "holdfast/cli/child/attended_child.h"

namespace holdfast { inline namespace v0_2 {

struct RankEnding {
  int rank = 0;
  Ending ending = {};
  bool told = false;  // it was told to end, because another rank had failed
};

bool is_failure(const Ending& ending);  // neither 0 nor 75

struct LaunchVerdict {
  int code = 0;
  std::string text;  // one line for the log
};

// `endings` in the order in which they happened. Requires at least one that was not told.
LaunchVerdict verdict_of(std::span<const RankEnding> endings);

}}  // namespace holdfast::v0_2
