// Times as cloud services write them: RFC 3339 ("2025-06-01T12:00:05Z", EC2's spot notices) and HTTP's own
// ("Sun, 01 Jun 2025 12:00:05 GMT", Azure's events; without the day of the week in EC2's maintenance events).
//
// Threads: pure. Independent of the locale.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "holdfast/base/clock.h"

namespace holdfast::inline v1 {

// Nothing for what is neither, to the last character. A wrong day of the week does not matter.
std::optional<WallTime> parse_service_time(std::string_view text);
std::string format_http_date(WallTime time);

}  // namespace holdfast::inline v1
