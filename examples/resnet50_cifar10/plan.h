// How far a run goes, and the learning rate's plan over it: linear warm-up, then a cosine down to a hundredth
// of the peak, or a constant.
//
// The final step is free to change on resume, so it may not decide the next step. The cosine ends where the
// user says (--schedule-steps: compared on resume), otherwise after as many whole epochs as the run was asked
// for at its first start; --steps 100 and --steps 200 of the same epoch therefore take the same steps. A run
// that is made longer stays at the floor beyond the end of its plan, and says so; --schedule-steps N with
// --override schedule-steps plans anew.
//
// Threads: pure functions.
#pragma once

#include <cstdint>

#include "holdfast/optim/rate_plan.h"
#include "options.h"

namespace example {

// The final step that the options ask for.
std::int64_t final_step(const Options& options, std::int64_t updates_per_epoch);

holdfast::RatePlan make_plan(const Options& options, std::int64_t updates_per_epoch);

// Says so when the last of `steps` updates lies beyond the plan's end.
void warn_when_longer_than(const holdfast::RatePlan& plan, const Options& options, std::int64_t steps);

}  // namespace example
