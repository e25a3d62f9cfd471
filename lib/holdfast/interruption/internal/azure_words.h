// Azure's list of scheduled events, read strictly: one JSON object with an array of events, or nothing.
//
// Threads: pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/base/clock.h"

namespace holdfast::inline v1::internal {

struct ScheduledEvent {
  std::string id;
  std::string type;                         // "Preempt"
  std::string status;                       // "Scheduled", "Started"
  std::optional<WallTime> not_before = {};  // absent: none that can be read
};

// Those whose resources name `machine`, in letters of either case. Nothing: not such an object, or an event
// in it cannot be read as one.
std::optional<std::vector<ScheduledEvent>> parse_scheduled_events(std::string_view body,
                                                                  std::string_view machine);
// The body that approves them.
std::string start_requests(const std::vector<std::string>& ids);

}  // namespace holdfast::inline v1::internal
