// What a run does at a step boundary when another machine stands by, or boots to do so. Once that is ready, this
// one commits and ends: what it trains until then counts, and a wait for the deadline would only cost. If the
// deadline comes first, the last commit begins as plan_for_deadline() says, and the run is handed over as soon
// as that is durable. A Checkpointer does the same: `train_on` until a standby is ready, `exit` from then on.
//
// Errors: none. Threads: pure.
#pragma once

#include <optional>

#include "holdfast/planning/deadline_planner.h"

namespace holdfast::bench {

// `deadline`: nullopt: no end is announced, only feared.
Plan plan_for_hand_over(SteadyTime now, const std::optional<Deadline>& deadline, const Costs& costs,
                        const Standing& standing, OnNotice policy, bool standby_ready) noexcept;

}  // namespace holdfast::bench
