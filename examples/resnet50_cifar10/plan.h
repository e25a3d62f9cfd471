// The length of a run and its learning rates: linear warm-up, then a cosine down to a hundredth of the peak,
// or a constant.
//
// The final step may change on resume, so it must not decide the next step. The cosine ends at
// --schedule-steps (compared on resume), or after the whole epochs that the first start asked for. So --steps
// 100 and --steps 200 of the same epoch take the same steps. A longer run stays at the floor beyond the
// plan's end and logs it. --schedule-steps N with --override schedule-steps makes a new plan.
//
// Threads: pure functions.
#pragma once

#include <cstdint>

#include "holdfast/optim/rate_plan.h"
#include "options.h"

namespace example {

// The final step that the options require.
std::int64_t final_step(const Options& options, std::int64_t updates_per_epoch);

holdfast::RatePlan make_plan(const Options& options, std::int64_t updates_per_epoch);

// Logs a warning if the last of `steps` updates lies beyond the plan's end.
void warn_when_longer_than(const holdfast::RatePlan& plan, const Options& options, std::int64_t steps);

}  // namespace example
