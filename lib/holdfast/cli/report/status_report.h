// What `holdfast status` says about a run: one JSON object, documented in docs/status_and_logs.md. The screen
// and the exit code are made from it.
//
// Errors: none. Threads: pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "holdfast/base/clock.h"
#include "holdfast/cli/run/run_view.h"

namespace holdfast { inline namespace v0_2 {

// Raised when a member changes its meaning or goes; new members do not count.
inline constexpr int kStatusSchema = 1;

struct StatusLimits {
  Duration max_age = std::chrono::minutes(15);  // without a sign of life, or without a new step
  // The most work that no checkpoint holds; zero: no limit. Unset: three save intervals, while saves fail.
  std::optional<Duration> max_unsaved = {};
};

nlohmann::ordered_json status_report(const RunView& view, const StatusLimits& limits);

}}  // namespace holdfast::v0_2
