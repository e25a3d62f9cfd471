// Checks that each rank has its own GPU. NCCL refuses two ranks on one GPU, but its message looks like a lost
// partner, and a launcher would restart such a run for ever. So this is checked before the first collective.
// NCCL 2.30 lets ranks share a GPU if NCCL_MULTI_RANK_GPU_ENABLE=1 asks for it: then rank 0 logs that they
// do.
//
// Keys: gpu/<r> (its GPU, empty for none, and whether it may be shared), gpu-known/<r>.
//
// Errors: UsageError on all ranks, which names those that share a GPU; GroupError if a rank does not answer
// in time; SilentStore. Threads: one.
#pragma once

#include <span>
#include <string>

#include "holdfast/base/launch_environment.h"
#include "holdfast/ranks/store_line.h"

namespace holdfast { inline namespace v0_2 {

// The first NCCL that lets ranks share a GPU, as ncclGetVersion() counts.
inline constexpr int kNcclThatShares = 23000;

struct RankGpu {
  std::string name = {};        // empty: a build without CUDA, or a test
  bool wants_to_share = false;  // NCCL_MULTI_RANK_GPU_ENABLE=1
  int nccl_version = 0;         // of the loaded library; 0: unknown
  bool may_share() const { return wants_to_share && nccl_version >= kNcclThatShares; }
};

// Describes which ranks share a GPU. `gpus` are in the order of ranks. Empty: none.
std::string shared_gpu(std::span<const std::string> gpus);
// Collective.
void require_own_gpus(StoreLine& line, const LaunchEnvironment& place, const RankGpu& gpu, Duration limit);

}}  // namespace holdfast::v0_2
