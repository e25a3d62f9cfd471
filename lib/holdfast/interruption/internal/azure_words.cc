#include "holdfast/interruption/internal/azure_words.h"

#include <strings.h>

#include <algorithm>

#include "holdfast/base/json.h"
#include "holdfast/interruption/service_time.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

bool is_name(const JsonValue& value, const std::string& machine) {
  // Azure's names of machines ignore case.
  return value.is(JsonValue::Kind::text) && strcasecmp(value.text.c_str(), machine.c_str()) == 0;
}

}  // namespace

std::optional<std::vector<ScheduledEvent>> parse_scheduled_events(std::string_view body,
                                                                  std::string_view machine) {
  const JsonValue json = parse_json(body);
  const JsonValue* const list = json.find("Events");
  if (list == nullptr || !list->is(JsonValue::Kind::list)) return std::nullopt;
  std::vector<ScheduledEvent> events;
  const std::string name(machine);
  for (const JsonValue& entry : list->items) {
    const JsonValue* const resources = entry.find("Resources");
    // A list without resources is no answer of this service; guessing could miss our own event.
    if (resources == nullptr || !resources->is(JsonValue::Kind::list)) return std::nullopt;
    if (std::none_of(resources->items.begin(), resources->items.end(),
                     [&](const JsonValue& resource) { return is_name(resource, name); })) {
      continue;
    }
    ScheduledEvent event{.id = text_member(entry, "EventId").value_or(""),
                         .type = text_member(entry, "EventType").value_or(""),
                         .status = text_member(entry, "EventStatus").value_or("")};
    if (const auto time = text_member(entry, "NotBefore")) event.not_before = parse_service_time(*time);
    events.push_back(std::move(event));
  }
  return events;
}

std::string start_requests(const std::vector<std::string>& ids) {
  std::string requests;
  for (const std::string& id : ids) {
    requests += (requests.empty() ? "" : ",") + (R"({"EventId":)" + json_text(id)) + "}";
  }
  return R"({"StartRequests":[)" + requests + "]}";
}

}}}  // namespace holdfast::v0_2::internal
