// Lives of machines: from a file, or drawn.
//
// Errors: holdfast::UsageError for a file that cannot be used, with its line. Threads: pure.
#pragma once

#include <cstdint>
#include <filesystem>
#include <istream>
#include <string>
#include <vector>

#include "holdfast/base/clock.h"

namespace holdfast::bench {

// Seconds, one life a line, in the first column; the first line may be a heading. At most a million lives of
// at most ten years.
std::vector<Duration> read_machine_lives(std::istream& csv, const std::string& name);
std::vector<Duration> read_machine_lives(const std::filesystem::path& csv);

// With the quantiles of public traces of preempted V100s: a quarter under 10 min (evenly), a quarter up to
// the median of 39 min, half up to 11.5 h (both evenly in their logarithm); the mean is 2 h. The same seed
// gives the same lives.
std::vector<Duration> draw_machine_lives(std::size_t count, std::uint64_t seed);

}  // namespace holdfast::bench
