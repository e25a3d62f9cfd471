// The stacks of this process's own threads. A tool cannot read them safely: it would stop the thread that
// limits it.
//
// Each thread is interrupted by a real-time signal that has no handler yet, and notes its frames. Calls that
// wait in the kernel go on, or return EINTR. So this is for a process that is about to end.
// Errors: none; the text says which threads did not answer. Threads: any, one at a time. Names need the
// loader's lock: use a thread that may be left behind (lookup.h).
#pragma once

#include <string>

#include "holdfast/base/clock.h"

namespace holdfast { inline namespace v0_2 {

// Of all threads but the caller's, which wait for each other at most until `end`. The main thread comes
// first. A thread that blocks the signal, as this library's do, is left out.
std::string own_stacks(SteadyTime end);

}}  // namespace holdfast::v0_2
