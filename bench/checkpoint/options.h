// The command line. Threads: free functions.
#pragma once

#include "parts.h"

namespace holdfast::bench {

// What can be measured, in the order in which it is.
inline constexpr const char* kParts[] = {"commit", "shared", "stolen",   "restore",
                                         "flat",   "memory", "training", "gpu"};

// UsageError, in one line, for a command line that is wrong. nullopt: --help was asked for, and printed.
std::optional<Options> parse_options(int argc, char** argv);

}  // namespace holdfast::bench
