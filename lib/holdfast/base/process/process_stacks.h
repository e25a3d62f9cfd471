// The stacks of processes on this machine, by eu-stack, or by gdb where PATH has no eu-stack. Either stops a
// process while it reads it, so this process notes its own stacks (own_stacks.h). For LibTorch's libraries
// gdb needs ten seconds and 600 MB, eu-stack one and 100.
//
// Errors: none; the text says what could not be read, and what would help. Threads: any; use one that may be
// left behind (lookup.h), because a tool may hang with a volume that holds the program.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <vector>

#include "holdfast/base/clock.h"

namespace holdfast { inline namespace v0_2 {

// The value of HOLDFAST_HOOK for such a tool. A wrapper knows by it that this child of its own is no process
// of its command.
inline constexpr char kStackToolName[] = "stack-tool";

// One text for each process, cut after `most` bytes. A few tools run at once. One that has not ended at `end`
// is killed, and the text says so.
std::vector<std::string> stacks_of(const std::vector<pid_t>& processes, SteadyTime end, std::size_t most);

}}  // namespace holdfast::v0_2
