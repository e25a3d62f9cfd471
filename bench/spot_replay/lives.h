// Lives of machines: read from a file, or drawn.
//
// Errors: UsageError for an unusable file, with the line. Threads: pure.
#pragma once

#include <cstdint>
#include <filesystem>
#include <istream>
#include <string>
#include <vector>

#include "holdfast/base/clock.h"

namespace holdfast::bench {

// One life per line, in seconds, in the first column. The first line may be a heading. At most a million
// lives of at most ten years.
std::vector<Duration> read_machine_lives(std::istream& csv, const std::string& name);
std::vector<Duration> read_machine_lives(const std::filesystem::path& csv);

// Draws lives with the quantiles of public traces of preempted V100s: a quarter under 10 min (uniform), a
// quarter up to the median of 39 min, half up to 11.5 h (both log-uniform). The mean is 2 h. Equal seeds give
// equal lives.
std::vector<Duration> draw_machine_lives(std::size_t count, std::uint64_t seed);

}  // namespace holdfast::bench
