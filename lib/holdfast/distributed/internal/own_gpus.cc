#include "holdfast/distributed/internal/own_gpus.h"

#include <map>
#include <vector>

#include "holdfast/base/text.h"
#include "holdfast/distributed/process_group.h"
#include "holdfast/ranks/rank_names.h"
#include "holdfast/ranks/store_line.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr Duration kUntilAllKnow = std::chrono::seconds(10);

}  // namespace

std::string shared_gpu(std::span<const std::string> gpus) {
  std::map<std::string_view, std::vector<int>> ranks;
  for (std::size_t rank = 0; rank < gpus.size(); ++rank) {
    // An empty name means a build without CUDA, or a test.
    if (!gpus[rank].empty()) ranks[gpus[rank]].push_back(static_cast<int>(rank));
  }
  for (const auto& [gpu, sharing] : ranks) {
    if (sharing.size() < 2) continue;
    return ranks_in_words(sharing) + " share one GPU (" + std::string(gpu) +
           "), and NCCL wants one for each: start as many ranks on a host as it has GPUs, each with "
           "cuda:LOCAL_RANK as its device or shown one alone by the launcher";
  }
  return {};
}

void require_own_gpus(StoreLine& line, const LaunchEnvironment& place, const std::string& gpu,
                      Duration limit) {
  const auto keys = keys_of_ranks("gpu", place.world_size);
  line.set(keys[static_cast<std::size_t>(place.rank)], gpu);
  const auto missing = ranks_of_keys(line.missing(keys, limit));
  if (!missing.empty()) {
    throw GroupError(ranks_in_words(missing) + " did not say which GPU is theirs within " +
                     format_duration(limit) + ": start all ranks again");
  }
  // Every rank looks at all names, so every rank ends with the same message.
  const std::string refusal = shared_gpu(line.get_all(keys));
  if (refusal.empty()) return;
  // The store ends with rank 0, so rank 0 waits until the others have read it.
  auto others = keys_of_ranks("gpu-known", place.world_size);
  line.set(others[static_cast<std::size_t>(place.rank)], "");
  if (place.rank == 0) line.missing(others, kUntilAllKnow);
  throw UsageError(refusal);
}

}}  // namespace holdfast::v0_2
