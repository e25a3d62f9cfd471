// Where the time of our example's start goes: a table, fresh and resumed.
//
// Errors: those of Programs; Error if the example tells no phases. Threads: one thread.
#pragma once

#include "programs.h"

namespace holdfast::bench {

void print_profile(const Programs& programs, int repetitions);

}  // namespace holdfast::bench
