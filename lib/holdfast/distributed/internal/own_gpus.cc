#include "holdfast/distributed/internal/own_gpus.h"

#include <map>
#include <vector>

#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/distributed/process_group.h"
#include "holdfast/ranks/rank_names.h"
#include "holdfast/ranks/store_line.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr Duration kUntilAllKnow = std::chrono::seconds(10);
// In the text of a rank: what follows is why it may not share its GPU; empty: it may.
constexpr char kUnlessShared = '\n';

std::string version_in_words(int version) {
  if (version == 0) return "a library that does not tell its version";
  const int minor = version / 100 % 100;
  return "NCCL " + std::to_string(version / 10000) + "." + std::to_string(minor) + "." +
         std::to_string(version % 100);
}

std::string why_not_shared(const RankGpu& gpu) {
  if (gpu.may_share()) return {};
  if (!gpu.wants_to_share)
    return ": start as many ranks on a host as it has GPUs, each with cuda:LOCAL_RANK as its device or shown "
           "one "
           "alone by the launcher";
  return ": NCCL_MULTI_RANK_GPU_ENABLE=1 needs NCCL 2.30 or newer, and " +
         version_in_words(gpu.nccl_version) + " is loaded (LD_PRELOAD of a newer libnccl.so.2 replaces it)";
}

}  // namespace

std::string shared_gpu(std::span<const std::string> gpus) {
  std::map<std::string_view, std::vector<int>> ranks;
  for (std::size_t rank = 0; rank < gpus.size(); ++rank) {
    // An empty name means a build without CUDA, or a test.
    if (!gpus[rank].empty()) ranks[gpus[rank]].push_back(static_cast<int>(rank));
  }
  for (const auto& [gpu, sharing] : ranks) {
    if (sharing.size() < 2) continue;
    return ranks_in_words(sharing) + " share one GPU (" + std::string(gpu) + ")";
  }
  return {};
}

void require_own_gpus(StoreLine& line, const LaunchEnvironment& place, const RankGpu& gpu, Duration limit) {
  line.bring("gpu", place.rank, place.world_size, gpu.name + kUnlessShared + why_not_shared(gpu));
  const auto missing = line.absent("gpu", place.world_size, limit);
  if (!missing.empty()) {
    throw GroupError(ranks_in_words(missing) + " did not say which GPU is theirs within " +
                     format_duration(limit) + ": start all ranks again");
  }
  // Every rank looks at all texts, so every rank ends with the same message.
  std::vector<std::string> gpus;
  std::string refusal;
  for (const auto& [rank, text] : line.came("gpu")) {
    const auto end = text.find(kUnlessShared);
    gpus.push_back(text.substr(0, end));
    if (refusal.empty() && end != std::string::npos) refusal = text.substr(end + 1);
  }
  const std::string shared = shared_gpu(gpus);
  if (shared.empty()) return;
  if (refusal.empty()) {
    if (place.rank == 0) {
      log_warning(
          "{}, as NCCL_MULTI_RANK_GPU_ENABLE=1 allows: this is for tests, and slow, because they take "
          "turns",
          shared);
    }
    return;
  }
  // The store ends with rank 0, so rank 0 waits until the others have read it.
  line.bring("gpu-known", place.rank, place.world_size);
  if (place.rank == 0) line.absent("gpu-known", place.world_size, kUntilAllKnow);
  throw UsageError(shared + ", and NCCL wants one for each" + refusal);
}

}}  // namespace holdfast::v0_2
