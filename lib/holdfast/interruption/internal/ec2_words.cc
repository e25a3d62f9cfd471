#include "holdfast/interruption/internal/ec2_words.h"

#include <utility>

#include "holdfast/base/json.h"
#include "holdfast/interruption/service_time.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

std::optional<WallTime> time_member(const JsonValue& object, const char* name) {
  const auto text = text_member(object, name);
  return text ? parse_service_time(*text) : std::nullopt;
}

}  // namespace

std::optional<InstanceAction> parse_instance_action(std::string_view body) {
  const JsonValue json = parse_json(body);
  if (!json.is(JsonValue::Kind::object)) return std::nullopt;
  return InstanceAction{text_member(json, "action").value_or(""), time_member(json, "time")};
}

std::optional<std::vector<MaintenanceEvent>> parse_maintenance_events(std::string_view body) {
  const JsonValue json = parse_json(body);
  if (!json.is(JsonValue::Kind::list)) return std::nullopt;
  std::vector<MaintenanceEvent> events;
  for (const JsonValue& entry : json.items) {
    if (!entry.is(JsonValue::Kind::object)) continue;
    // Events without a state are taken as active, because ignoring one could lose a run.
    const std::string state = text_member(entry, "State").value_or("active");
    if (state == "completed" || state == "canceled") continue;
    events.push_back({text_member(entry, "EventId").value_or(""), text_member(entry, "Code").value_or(""),
                      time_member(entry, "NotBefore")});
  }
  return events;
}

bool is_json_object(std::string_view body) { return parse_json(body).is(JsonValue::Kind::object); }

}}}  // namespace holdfast::v0_2::internal
