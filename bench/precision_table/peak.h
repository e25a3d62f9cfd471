// What a device could compute at most, in dense TFLOP/s, by its makers' data sheets.
//
// Errors: UsageError for a --peak that cannot be read. Threads: pure functions.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace holdfast::bench {

using Peaks = std::map<std::string, double, std::less<>>;  // by precision

// By the name that the driver gives; nullopt: not in our table.
std::optional<Peaks> known_peaks(std::string_view device);

// "312", for every precision, or "tf32=156,fp16=312".
Peaks parse_peaks(const std::string& text);

}  // namespace holdfast::bench
