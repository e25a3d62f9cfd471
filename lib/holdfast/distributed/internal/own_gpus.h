// Checks that each rank has its own GPU. NCCL refuses two ranks on one GPU, but its message looks like a lost
// partner, and a launcher would restart such a run for ever. So this is checked before the first collective.
//
// Keys: gpu/<r> (its GPU, empty for none), gpu-known/<r>.
//
// Errors: UsageError on all ranks, which names those that share a GPU; GroupError if a rank does not answer
// in time; SilentStore. Threads: one.
#pragma once

#include <span>
#include <string>

#include "holdfast/base/launch_environment.h"
#include "holdfast/ranks/store_line.h"

namespace holdfast { inline namespace v0_2 {

// Describes which ranks share a GPU. `gpus` are in the order of ranks. Empty: none.
std::string shared_gpu(std::span<const std::string> gpus);

// Collective.
void require_own_gpus(StoreLine& line, const LaunchEnvironment& place, const std::string& gpu,
                      Duration limit);

}}  // namespace holdfast::v0_2
