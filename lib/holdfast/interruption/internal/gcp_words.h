// Parses Google's announcement of planned maintenance: one JSON object, or nothing. Accepts both spellings of
// its members, `window_start_time` and `windowStartTime`.
//
// Errors: return values. Threads: pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "holdfast/base/clock.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

struct UpcomingMaintenance {
  std::string type;                         // "SCHEDULED", "UNSCHEDULED"
  std::string status;                       // "PENDING", "ONGOING"
  std::string start;                        // as written; distinguishes two events
  std::optional<WallTime> not_before = {};  // unset: missing or unreadable
};

// nullopt for NONE, {}, {"error": …} and everything else that names neither a start nor a status.
std::optional<UpcomingMaintenance> parse_upcoming_maintenance(std::string_view body);

}}}  // namespace holdfast::v0_2::internal
