// What metadata services say: every parser on the same bytes. Never a time that cannot be, never a text that
// steers a terminal, and what is no JSON value is nothing.
#include "holdfast/base/text.h"
#include "holdfast/base/utf8.h"
#include "holdfast/interruption/internal/azure_words.h"
#include "holdfast/interruption/internal/ec2_words.h"
#include "holdfast/interruption/internal/shown_text.h"
#include "holdfast/interruption/service_time.h"
#include "memory_budget.h"

namespace {

using namespace holdfast;
using namespace holdfast::test;

void require_time(const std::optional<WallTime>& time) {
  if (!time) return;
  require(*time >= WallTime{}, "a time before 1970");
  const auto whole = std::chrono::floor<std::chrono::seconds>(*time);
  require(parse_service_time(format_http_date(whole)) == WallTime(whole),
          "a time that is read otherwise than written");
}

void require_shown(std::string_view text) {
  const std::string shown = internal::shown(text, 40);
  require(shown.size() <= 43 && is_utf8(shown) && !has_control(shown), "a text that cannot be shown");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  const MemoryBudget budget(budget_for(size));
  const bool object = internal::is_json_object(body);

  const auto action = internal::parse_instance_action(body);
  require(action.has_value() == object, "an action out of what is no object");
  if (action) {
    require_shown(action->action);
    require_time(action->time);
  }
  if (const auto events = internal::parse_maintenance_events(body)) {
    require(!object, "an object that is a list");
    for (const auto& event : *events) {
      require_shown(event.code);
      require_time(event.not_before);
    }
  }
  if (const auto events = internal::parse_scheduled_events(body, "vm-1")) {
    require(object, "events out of what is no object");
    std::vector<std::string> ids;
    for (const auto& event : *events) {
      require_shown(event.type);
      require_time(event.not_before);
      ids.push_back(event.id);
    }
    require(internal::is_json_object(internal::start_requests(ids)), "an approval that is no object");
  }
  require_time(parse_service_time(body));
  require_shown(body);
  return 0;
}
