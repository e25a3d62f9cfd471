// Each rank needs a GPU of its own. NCCL refuses two ranks on one, but in words that read as if a partner had
// been lost, and that is started again for ever; so this is asked before the first collective.
//
// Keys: gpu/<r> (which one it is, empty for none), gpu-known/<r>.
//
// Errors: UsageError on all ranks that names those that share one; GroupError where ranks do not say theirs
// in time; SilentStore. Threads: one.
#pragma once

#include <span>
#include <string>

#include "holdfast/base/launch_environment.h"
#include "holdfast/distributed/internal/store_line.h"

namespace holdfast::inline v1 {

// What is wrong with these, in the ranks' order; empty: nothing.
std::string shared_gpu(std::span<const std::string> gpus);

// Collective.
void require_own_gpus(StoreLine& line, const LaunchEnvironment& place, const std::string& gpu,
                      Duration limit);

}  // namespace holdfast::inline v1
