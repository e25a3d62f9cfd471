// Numbers as people write and read them: durations, sizes, counts, times.
//
// Parsers return nullopt unless they understand the whole text; the caller knows the option's name and makes
// the message. Nothing depends on the locale.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "holdfast/base/clock.h"
#include "holdfast/base/export.h"

namespace holdfast { inline namespace v0_2 {

// "30s", "5min", "2h", "1.5h", "1h30min", "250ms", "7d". Units: ns us ms s sec m min h d. A unit is required,
// except for "0", because a bare number is ambiguous. Not negative, at most 100 years.
HOLDFAST_EXPORT std::optional<Duration> parse_duration(std::string_view text);

// "2GB", "1.5 TB", "512MiB", "4096B". Units are decimal; those with an i are binary. A bare number is bytes.
// At most 8 EiB.
HOLDFAST_EXPORT std::optional<std::uint64_t> parse_bytes(std::string_view text);

// A whole decimal integer with an optional minus sign: "500", "-1".
HOLDFAST_EXPORT std::optional<std::int64_t> parse_int(std::string_view text);
// Finite decimal floating point: "0.1", "1e-4".
HOLDFAST_EXPORT std::optional<double> parse_double(std::string_view text);

// At most two units: "350 ms", "4.2 s", "35s", "1m 20s", "2h 05m", "3d 04h". Zero and negative give "0s".
HOLDFAST_EXPORT std::string format_duration(Duration duration);
// Decimal units, three digits: "512 B", "94.3 MB", "2.14 GB".
HOLDFAST_EXPORT std::string format_bytes(std::uint64_t bytes);
// Bytes per second: "1.20 GB/s". A time of zero gives "0 B/s".
HOLDFAST_EXPORT std::string format_byte_rate(std::uint64_t bytes, Duration time);
// With thousands separators: "1,234,567".
HOLDFAST_EXPORT std::string format_count(std::int64_t value);
// Four significant digits below 1000; above, a whole number with separators: "0.9513", "93.42", "1,830".
HOLDFAST_EXPORT std::string format_number(double value);
// UTC, ISO 8601, to the second: "2025-06-01T12:00:05Z".
HOLDFAST_EXPORT std::string format_utc(WallTime time);
// Parses format_utc()'s form, and the other forms of RFC 3339: a fraction ("05.25Z"), a blank for T, lower
// case, an offset ("+02:00"). Years 1970 to 2261. A leap second counts as the second after it.
HOLDFAST_EXPORT std::optional<WallTime> parse_utc(std::string_view text);

}}  // namespace holdfast::v0_2
