#include "holdfast/planning/vote_cadence.h"

#include <algorithm>
#include <utility>

namespace holdfast { inline namespace v0_2 { namespace run {

VoteCadence::VoteCadence(int world_size)
    : interval_(kInterval *
                std::clamp((world_size + kRanksOfInterval - 1) / kRanksOfInterval, 1, kMostIntervals)) {}

void VoteCadence::learn(const Vote& all) {
  // As many steps as fit into the interval, by a step time that all ranks have agreed on.
  const Step fitting = all.step_time > Duration::zero() ? interval_ / all.step_time : 1;
  // At most twice as many as last time: one step that looked short must not stop the votes for long.
  steps_ = std::clamp<Step>(fitting, 1, std::min(2 * steps_, kMostSteps));
  // The first news of an end, and the last minutes before it, need a vote at each step.
  const bool announced = all.left.any != kNoEnd || all.left.sleep != kNoEnd;
  const bool news = !std::exchange(end_announced_, announced) && announced;
  const bool near = all.left.any != kNoEnd && all.left.any <= kNear + 2 * all.needs;
  const bool done = (all.save >= 0 && all.busy < 0) || all.pause >= 0;
  next_ = all.highest + (news || near || done ? 1 : steps_);
  // One that falls due at the very next step has been voted on.
  if (all.due > all.highest + 1) next_ = std::min(next_, all.due - 1);
}

}}}  // namespace holdfast::v0_2::run
