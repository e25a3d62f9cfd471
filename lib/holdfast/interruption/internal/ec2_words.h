// Parses the answers of EC2's metadata service strictly: one JSON value of the expected kind, or nothing. A
// missing member and one of another type are empty; the source decides what that means.
//
// Errors: return values. Threads: pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/base/clock.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

struct InstanceAction {
  std::string action;            // empty: the answer names none
  std::optional<WallTime> time;  // unset: missing or unreadable
};
// nullopt if the body is not one JSON object.
std::optional<InstanceAction> parse_instance_action(std::string_view body);

struct MaintenanceEvent {
  std::string id;
  std::string code;
  std::optional<WallTime> not_before;
};
// Events that are neither completed nor cancelled. nullopt if the body is not one JSON array.
std::optional<std::vector<MaintenanceEvent>> parse_maintenance_events(std::string_view body);

bool is_json_object(std::string_view body);

}}}  // namespace holdfast::v0_2::internal
