// The command line. Threads: free functions.
#pragma once

#include "parts.h"

namespace holdfast::bench {

// The parts of the bench, in the order in which they run.
inline constexpr const char* kParts[] = {"commit", "shared",   "stolen", "restore", "flat",
                                         "memory", "training", "split",  "gpu"};

// UsageError, one line, for a wrong command line. nullopt: --help was printed.
std::optional<Options> parse_options(int argc, char** argv);

}  // namespace holdfast::bench
