// Defaults that depend on the machine or on other options, and checks for contradicting options. Threads:
// free functions.
#pragma once

#include <functional>

#include "options.h"

namespace example {

// Call before the command line is read.
void apply_machine_defaults(Options& options, bool cuda_available);

using Given = std::function<bool(const char* flag)>;  // true if the command line has this flag
// Call after it. UsageError, one line, for combinations that are impossible or that this machine cannot do.
void settle(Options& options, const Given& given);

}  // namespace example
