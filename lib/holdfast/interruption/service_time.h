// Times as cloud services write them: RFC 3339 ("2025-06-01T12:00:05Z", EC2's spot notices) and HTTP dates
// ("Sun, 01 Jun 2025 12:00:05 GMT", Azure's events; without the day of the week in EC2's maintenance events).
//
// Errors: return value. Threads: pure. Nothing depends on the locale.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "holdfast/base/clock.h"

namespace holdfast { inline namespace v0_2 {

// nullopt unless the whole text has one of these forms. A wrong day of the week is ignored.
std::optional<WallTime> parse_service_time(std::string_view text);
std::string format_http_date(WallTime time);

}}  // namespace holdfast::v0_2
