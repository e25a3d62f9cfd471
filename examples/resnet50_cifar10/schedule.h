// The learning rate's plan over a run: linear warm-up, then a cosine down to a hundredth of the peak, or a
// constant. A pure function of the step.
//
// The final step is free to change on resume, so it may not decide the next step: the plan is made when the
// run begins, recorded, and kept. Its length is what the user says (--schedule-steps: compared on resume),
// otherwise as many whole epochs as the run is asked for at its first start; --steps 100 and --steps 200 of
// the same epoch therefore take the same steps. A run that is made longer stays at the floor beyond the end
// of its plan, and says so; --schedule-steps N --override schedule-steps plans anew.
//
// Threads: the training thread.
#pragma once

#include <cstdint>

#include "holdfast/state/stateful.h"
#include "options.h"

namespace example {

class Schedule {
 public:
  // `updates_per_epoch` of the data; the rest from the options.
  Schedule(const Options& options, std::int64_t updates_per_epoch);

  // Of the update that follows `step` updates.
  double learning_rate(std::int64_t step) const;
  std::int64_t steps() const { return steps_; }

  void save(holdfast::StateWriter& out) const;
  void load(const holdfast::StateReader& in);

 private:
  ScheduleKind kind_;
  double peak_;
  std::int64_t steps_;
  std::int64_t warmup_steps_;
  bool steps_given_;
  bool warmup_given_;
};

// The final step that the options ask for.
std::int64_t final_step(const Options& options, std::int64_t updates_per_epoch);

}  // namespace example
