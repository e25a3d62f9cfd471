// A picture of a run's lives: one row an attempt, wall time from left to right. Colours show what the time
// was used for, ticks show commits, and marks show notices, each with a line to its deadline. A long run
// shows its newest kMostTimelineRows attempts.
//
// Errors: none; texts from ledgers are escaped. Threads: pure.
#pragma once

#include <string>
#include <vector>

#include "holdfast/cli/report/svg.h"
#include "holdfast/ledger/goodput.h"

namespace holdfast { inline namespace v0_2 {

inline constexpr std::size_t kMostTimelineRows = 200;

// `account` must be computed from `lives`. Without a title the rows begin higher.
SvgPicture timeline_picture(const std::vector<LedgerLife>& lives, const RunAccount& account,
                            const std::string& title);

}}  // namespace holdfast::v0_2
