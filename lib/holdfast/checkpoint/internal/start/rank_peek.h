// What ranks tell each other before a run begins, and Checkpointer::peek() with several ranks.
//
// Errors: as StartFinder and RankChannel. Another rank's error is thrown here with its exit code.
// Threads: the training thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "holdfast/base/clock.h"
#include "holdfast/base/error.h"
#include "holdfast/checkpoint/checkpointer.h"
#include "holdfast/checkpoint/internal/engine.h"
#include "holdfast/ranks/rank_group.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// Rank 0 may wait for its volume and read a large state; that it has died or hangs is noticed by the store.
inline constexpr Duration kStartWait = std::chrono::hours(1);

nlohmann::json failure_of(const Error& error);
void throw_if_failed(const nlohmann::json& told, int rank);
// A signal ends this wait as it ends rank 0's.
nlohmann::json hear_at_start(Run& run, RankGroup& group, int rank, const char* name, Duration limit);

// For the `call`th time in this process. Collective: all get what rank 0 would start from.
std::optional<Peeked> peek_together(Engine& engine, RankGroup& group, int call);

}}}  // namespace holdfast::v0_2::internal
