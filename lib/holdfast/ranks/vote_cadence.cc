#include "holdfast/ranks/vote_cadence.h"

#include <algorithm>
#include <utility>

namespace holdfast { inline namespace v0_2 {

VoteCadence::VoteCadence(int world_size)
    : interval_(kInterval *
                std::clamp((world_size + kRanksOfInterval - 1) / kRanksOfInterval, 1, kMostIntervals)) {}

void VoteCadence::learn(const Agreed& agreed) {
  newest_ = agreed.step;
  // As many steps as fit into the interval, by a step time that all ranks have agreed on.
  const std::int64_t fitting = agreed.step_time > Duration::zero() ? interval_ / agreed.step_time : 1;
  // At most twice as many as last time: one step that looked short must not stop the votes for long.
  steps_ = std::clamp<std::int64_t>(fitting, 1, std::min(2 * steps_, kMostSteps));
  // The first news of an end, and the last minutes before it, need a vote at each step.
  const bool announced = agreed.left || agreed.sleep_left;
  const bool news = !std::exchange(end_announced_, announced) && announced;
  const bool near = agreed.left && *agreed.left <= kNear + 2 * agreed.needs;
  const bool done = agreed.saves() || agreed.pause >= 0;
  next_ = agreed.step + (news || near || done ? 1 : steps_);
  // One that falls due at the very next step has been voted on.
  if (agreed.due > agreed.step + 1) next_ = std::min(next_, agreed.due - 1);
}

}}  // namespace holdfast::v0_2
