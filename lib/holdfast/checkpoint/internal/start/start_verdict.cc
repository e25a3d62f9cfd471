#include "holdfast/checkpoint/internal/start/start_verdict.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace holdfast { inline namespace v0_2 { namespace internal {

void to_json(nlohmann::json& json, const Verdict& verdict) {
  json = {{"attempt", verdict.attempt}, {"fresh", verdict.fresh},
          {"branch", verdict.branch},   {"checkpoint", verdict.checkpoint},
          {"durable", verdict.durable}, {"bytes", verdict.bytes},
          {"index", verdict.index},     {"shared_write", verdict.shared_write},
          {"hosts", verdict.hosts},     {"image", verdict.image}};
}

void from_json(const nlohmann::json& json, Verdict& verdict) {
  verdict = {.attempt = json.value("attempt", AttemptNumber{0}),
             .fresh = json.value("fresh", true),
             .branch = json.value("branch", false),
             .checkpoint = json.value("checkpoint", std::string()),
             .durable = json.value("durable", std::int64_t{-1}),
             .bytes = json.value("bytes", std::uint64_t{0}),
             .index = json.value("index", std::string()),
             .shared_write = json.value("shared_write", false),
             .hosts = json.value("hosts", std::vector<int>()),
             .image = json.value("image", OfferedImage())};
}

ReadingPlan plan_of(const Verdict& verdict, const RankGroup& group) {
  std::vector<int> hosts(static_cast<std::size_t>(group.world_size()));
  // Without news of a rank it is a host of its own.
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    const int own = static_cast<int>(rank);
    hosts[rank] = rank < verdict.hosts.size() ? std::clamp(verdict.hosts[rank], 0, own) : own;
  }
  std::vector<bool> sees;
  for (int rank = 0; !verdict.index.empty() && rank < group.world_size(); ++rank)
    sees.push_back(group.sees(rank));
  return plan_reading(hosts, sees, verdict.image.why_not.empty());
}

}}}  // namespace holdfast::v0_2::internal
