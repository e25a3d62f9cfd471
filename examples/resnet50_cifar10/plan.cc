#include "plan.h"

#include <algorithm>

#include "holdfast/base/log.h"

namespace example {
namespace {

constexpr double kFloor = 0.01;

using holdfast::Length;
using holdfast::RatePlan;

Length length(std::int64_t steps, bool chosen) { return chosen ? Length(steps) : Length::derived(steps); }

std::int64_t planned_steps(const Options& options, std::int64_t updates_per_epoch) {
  if (options.schedule_steps) return *options.schedule_steps;
  std::int64_t epochs = options.epochs.value_or(options.default_epochs);
  if (options.steps) {
    epochs = std::max(epochs, (*options.steps + updates_per_epoch - 1) / updates_per_epoch);
  }
  return epochs * updates_per_epoch;
}

}  // namespace

std::int64_t final_step(const Options& options, std::int64_t updates_per_epoch) {
  if (options.steps) return *options.steps;
  return options.epochs.value_or(options.default_epochs) * updates_per_epoch;
}

RatePlan make_plan(const Options& options, std::int64_t updates_per_epoch) {
  const std::int64_t steps = planned_steps(options, updates_per_epoch);
  const std::int64_t warmup = options.warmup_steps.value_or(steps / options.warmup_share);
  RatePlan after = RatePlan::constant();
  if (options.schedule == ScheduleKind::cosine) {
    const std::int64_t rest = std::max<std::int64_t>(steps - warmup, 1);
    after = RatePlan::cosine(length(rest, options.schedule_steps.has_value()), kFloor);
  }
  // If the user chose one length, both count as chosen: together they end at --schedule-steps.
  const bool chosen = options.warmup_steps.has_value() || options.schedule_steps.has_value();
  return RatePlan::warmup(length(warmup, chosen), after);
}

void warn_when_longer_than(const RatePlan& plan, const Options& options, std::int64_t steps) {
  // Only steps at the plan's end and beyond it have the floor's rate.
  if (options.schedule == ScheduleKind::constant || plan.factor(steps - 1) > kFloor) return;
  holdfast::log_warning(
      "the run goes to step {}, beyond the end of the learning rate's plan ({}): there the rate stays at its "
      "floor; --schedule-steps {} --override schedule-steps plans anew",
      steps, plan.text(), steps);
}

}  // namespace example
