// What EC2's metadata service says, read strictly: one JSON value of the expected kind, or nothing. Members
// that are missing or of another type are nothing too; what that means is the source's business.
//
// Threads: pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/base/clock.h"

namespace holdfast::inline v1::internal {

struct InstanceAction {
  std::string action;            // empty: none is named
  std::optional<WallTime> time;  // absent: none that can be read
};
// Nothing: not one JSON object.
std::optional<InstanceAction> parse_instance_action(std::string_view body);

struct MaintenanceEvent {
  std::string id;
  std::string code;
  std::optional<WallTime> not_before;
};
// Those that are neither completed nor cancelled. Nothing: not one JSON array.
std::optional<std::vector<MaintenanceEvent>> parse_maintenance_events(std::string_view body);

bool is_json_object(std::string_view body);

}  // namespace holdfast::inline v1::internal
