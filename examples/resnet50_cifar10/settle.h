// Defaults that the machine decides or that follow from other options, and options that contradict each
// other. Threads: free functions.
#pragma once

#include <functional>

#include "options.h"

namespace example {

// Before the command line is read.
void apply_machine_defaults(Options& options, bool cuda_available);

using Given = std::function<bool(const char* flag)>;  // did the command line name it?
// After it. UsageError, in one line, for what cannot be had together or on this machine.
void settle(Options& options, const Given& given);

}  // namespace example
