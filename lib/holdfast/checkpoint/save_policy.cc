#include "holdfast/checkpoint/save_policy.h"

#include <algorithm>

#include "holdfast/base/error.h"

namespace holdfast::inline v1 {

SaveEvery SaveEvery::steps(std::int64_t count) {
  SaveEvery trigger;
  trigger.step_count = count;
  return trigger;
}

SavePolicy::SavePolicy(std::vector<SaveEvery> triggers, SteadyTime start, std::int64_t step)
    : triggers_(std::move(triggers)), last_time_(start), last_step_(step) {
  for (const SaveEvery& trigger : triggers_) {
    if (!trigger.time && !trigger.step_count) {
      throw UsageError("a save interval is empty; give a time (5min) or a number of steps (500steps)");
    }
    if (trigger.time && *trigger.time <= Duration::zero()) {
      throw UsageError("the save interval " + std::to_string(trigger.time->count()) +
                       " ns is not positive; give for instance 5min");
    }
    if (trigger.step_count && *trigger.step_count <= 0) {
      throw UsageError("the save interval of " + std::to_string(*trigger.step_count) +
                       " steps is not positive; give at least 1");
    }
  }
}

bool SavePolicy::due(SteadyTime now, std::int64_t step) const {
  return std::any_of(triggers_.begin(), triggers_.end(), [&](const SaveEvery& trigger) {
    return (trigger.time && now - last_time_ >= *trigger.time) ||
           (trigger.step_count && step - last_step_ >= *trigger.step_count);
  });
}

void SavePolicy::saved(SteadyTime now, std::int64_t step) {
  last_time_ = now;
  last_step_ = step;
}

}  // namespace holdfast::inline v1
