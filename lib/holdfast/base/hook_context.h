// What a user's hook (--on-complete, --on-give-up, --on-risk) reads from its environment. Each hook gets all:
//
//   HOLDFAST_HOOK           the hook's name: on-complete, on-give-up, on-risk
//   HOLDFAST_RUN_DIRECTORY  the run directory; empty if none was given
//   HOLDFAST_STEP           on-risk: the newest step; otherwise the newest committed step; empty: none
//   HOLDFAST_EXIT_CODE      the run's exit code; empty while it trains
//   HOLDFAST_REASON         one line for people
//   HOLDFAST_DEADLINE       when the machine ends, in UTC: 2026-01-31T12:00:00Z; empty if unknown
//
// Errors: bad_alloc. Threads: plain values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "holdfast/base/clock.h"

namespace holdfast { inline namespace v0_2 {

inline constexpr char kHookVariable[] = "HOLDFAST_HOOK";
// `holdfast supervise` finds the processes of an on-risk hook by this value in their environment, because
// they may outlive the trainer that started them.
inline constexpr char kRiskHookName[] = "on-risk";

struct HookContext {
  std::string hook;
  std::string directory = {};
  std::int64_t step = -1;
  std::optional<int> exit_code = {};
  std::string reason = {};
  std::optional<WallTime> deadline = {};
};

std::map<std::string, std::string> to_environment(const HookContext& context);

}}  // namespace holdfast::v0_2
