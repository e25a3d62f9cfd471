// Parses Azure's list of scheduled events strictly: one JSON object with an array of events, or nothing.
//
// Errors: return values. Threads: pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/base/clock.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

struct ScheduledEvent {
  std::string id;
  std::string type;                         // "Preempt"
  std::string status;                       // "Scheduled", "Started"
  std::optional<WallTime> not_before = {};  // unset: missing or unreadable
};

// Events whose resources name `machine`, ignoring case. nullopt if the body is not such an object, or if one
// of its events is malformed.
std::optional<std::vector<ScheduledEvent>> parse_scheduled_events(std::string_view body,
                                                                  std::string_view machine);
// The request body that approves these events.
std::string start_requests(const std::vector<std::string>& ids);

}}}  // namespace holdfast::v0_2::internal
