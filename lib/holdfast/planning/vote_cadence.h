// Which step boundaries vote: about one a second, in large worlds one every few seconds. They are the same on
// all ranks, because each rank computes them from the results of votes alone.
//
//   if (cadence.votes_at(step)) post(vote);   // the result is read at the next boundary:
//   cadence.learn(all);
//
// Errors: none. Threads: one thread.
#pragma once

#include <cstdint>

#include "holdfast/base/clock.h"
#include "holdfast/planning/run_events.h"

namespace holdfast { inline namespace v0_2 { namespace run {

// The next vote comes after as many steps as fit into kInterval, by the longest step time that a rank told.
// It comes earlier
//   - a step before the one at which rank 0's save policy falls due, so that the save begins there,
//   - at the next boundary after votes that led to an action, because rank 0 then reports its result,
//   - at the next boundary when an end is announced, because rank 0 answers it, and at every boundary when
//     that end is near.
// The number of steps at most doubles from vote to vote: the first steps of a run are often slower. If steps
// suddenly become n times longer, one vote comes n times later.
class VoteCadence {
 public:
  explicit VoteCadence(int world_size = 1);

  static constexpr Duration kInterval = std::chrono::seconds(1);
  // More ranks vote less often, so that the votes of a thousand cost rank 0 less than 1 % of a core: every
  // two seconds up to 1,024 ranks, every four seconds at most.
  static constexpr int kRanksOfInterval = 512;
  static constexpr int kMostIntervals = 4;
  // For steps shorter than a millisecond: they may become longer again.
  static constexpr Step kMostSteps = 1000;
  // Less time left than this and two last saves: an end is near.
  static constexpr Duration kNear = std::chrono::seconds(60);

  // True at the first boundary of a run.
  bool votes_at(Step step) const { return step >= next_; }
  // The steps after the newest vote's and before this one do not vote.
  Step next_step() const { return next_; }
  // The result of a vote in the loop. Requires a result of every vote, in their order.
  void learn(const Vote& all);

 private:
  Duration interval_;
  Step next_ = INT64_MIN;
  Step steps_ = 1;  // from one vote to the next
  bool end_announced_ = false;
};

}}}  // namespace holdfast::v0_2::run
