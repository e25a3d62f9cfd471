#include "holdfast/interruption/internal/gcp_words.h"

#include "holdfast/base/json.h"
#include "holdfast/interruption/service_time.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

std::string either_member(const JsonValue& json, std::string_view name, std::string_view other_name) {
  // The metadata server and the compute API spell members differently.
  const auto text = text_member(json, name);
  return text ? *text : text_member(json, other_name).value_or("");
}

}  // namespace

std::optional<UpcomingMaintenance> parse_upcoming_maintenance(std::string_view body) {
  const JsonValue json = parse_json(body);
  UpcomingMaintenance found{.type = either_member(json, "type", "type"),
                            .status = either_member(json, "maintenance_status", "maintenanceStatus"),
                            .start = either_member(json, "window_start_time", "windowStartTime")};
  if (found.status.empty() && found.start.empty()) return std::nullopt;
  found.not_before = parse_service_time(found.start);
  return found;
}

}}}  // namespace holdfast::v0_2::internal
