// Peak speed of devices in dense TFLOP/s, from data sheets.
//
// Errors: UsageError for an unreadable --peak. Threads: pure functions.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace holdfast::bench {

using Peaks = std::map<std::string, double, std::less<>>;  // by precision

// By the name that the driver reports; nullopt: unknown device.
std::optional<Peaks> known_peaks(std::string_view device);

// "312", for every precision, or "tf32=156,fp16=312".
Peaks parse_peaks(const std::string& text);

}  // namespace holdfast::bench
