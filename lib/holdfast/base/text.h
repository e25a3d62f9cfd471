// Numbers as people write and read them: durations, sizes, counts, times.
//
// Parsers return nullopt for anything they do not understand entirely; whoever knows the option's name makes
// the message. They do not depend on the locale.
// Threads: free functions, pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "holdfast/base/clock.h"

namespace holdfast::inline v1 {

// "30s", "5min", "2h", "1.5h", "1h30min", "250ms", "7d". Units: ns us ms s sec m min h d; a unit is required
// (a bare number is refused: nobody knows what it means), except for "0". Not negative, at most 100 years.
std::optional<Duration> parse_duration(std::string_view text);

// "2GB", "1.5 TB", "512MiB", "4096B": decimal units, binary ones with an i; a bare number is bytes. At most 8
// EiB.
std::optional<std::uint64_t> parse_bytes(std::string_view text);

// Whole decimal integer, sign allowed, nothing else: "500", "-1".
std::optional<std::int64_t> parse_int(std::string_view text);
// Decimal floating point, finite: "0.1", "1e-4".
std::optional<double> parse_double(std::string_view text);

// Two units at most, for people: "350 ms", "4.2 s", "35s", "1m 20s", "2h 05m", "3d 04h". Negative: "0s" and
// up is assumed, so a negative duration is shown as "0s".
std::string format_duration(Duration duration);
// Decimal units, three digits: "512 B", "94.3 MB", "2.14 GB".
std::string format_bytes(std::uint64_t bytes);
// Bytes over a time: "1.20 GB/s". A time of zero gives "0 B/s".
std::string format_byte_rate(std::uint64_t bytes, Duration time);
// With thousands separators: "1,234,567".
std::string format_count(std::int64_t value);
// Four significant digits below 1000, then whole with separators: "0.9513", "93.42", "1,830".
std::string format_number(double value);
// UTC, ISO 8601, to the second: "2025-06-01T12:00:05Z".
std::string format_utc(WallTime time);
// The same back, as RFC 3339 has it: also with a fraction ("05.25Z"), a blank or lower-case letters instead
// of T and Z, and an offset ("+02:00"). The years 1970 to 2261; a leap second counts as the one after it.
std::optional<WallTime> parse_utc(std::string_view text);

}  // namespace holdfast::inline v1
