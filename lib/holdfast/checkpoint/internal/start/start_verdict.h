// What rank 0 tells the others when it has claimed the directory: where all begin, and how each rank gets the
// checkpoint.
//
// Errors: none. Threads: plain values.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "holdfast/ranks/rank_group.h"
#include "holdfast/ranks/shared_image.h"
#include "holdfast/store/verifier.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// The result of rank 0's start.
struct Verdict {
  AttemptNumber attempt = 0;
  bool fresh = true;
  bool branch = false;          // Resumed::branch
  std::string checkpoint;       // the file's name
  std::int64_t durable = -1;    // the newest durable step
  std::uint64_t bytes = 0;      // of the file that all load; 0: none
  std::string index;            // its index_digest() if it is in the run directory; else empty
  bool shared_write = false;    // rank 0's option: all ranks check whether they see the volume
  std::vector<int> hosts = {};  // by rank, the lowest rank of its host; as plan_reading() wants it
  OfferedImage image = {};      // of the file, in rank 0's memory
};
void to_json(nlohmann::json& json, const Verdict& verdict);
void from_json(const nlohmann::json& json, Verdict& verdict);

// How each rank gets the file. Equal on all ranks.
ReadingPlan plan_of(const Verdict& verdict, const RankGroup& group);

}}}  // namespace holdfast::v0_2::internal
