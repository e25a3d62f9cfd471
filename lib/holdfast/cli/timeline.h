// A picture of a run's lives: one row an attempt, wall time from left to right, what the time went into in
// colours, commits as ticks, notices as marks with a line to their deadline. Of a long run the newest
// kMostRows rows.
//
// Texts from ledgers are escaped. Threads: pure.
#pragma once

#include <string>
#include <vector>

#include "holdfast/checkpoint/goodput.h"

namespace holdfast::inline v1 {

inline constexpr std::size_t kMostTimelineRows = 200;

// `lives` as read, `account` made of them. A whole SVG document.
std::string timeline_svg(const std::vector<LedgerLife>& lives, const RunAccount& account,
                         const std::string& title);

}  // namespace holdfast::inline v1
