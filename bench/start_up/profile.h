// Where the time of our example's start goes: a table, fresh and resumed, or with caches cold and warm.
//
// Errors: those of Programs; Error if the example tells no phases. Threads: one thread.
#pragma once

#include "programs.h"

namespace holdfast::bench {

void print_profile(const Programs& programs, int repetitions);
// Of resumed starts: nothing is cached; on the same machine again; on a new machine, with what the first one has
// left beside the run.
void print_caches(const Programs& programs, int repetitions);

}  // namespace holdfast::bench
