// This rank's votes, and the results of all (ranks/rank_channel.h). Rank 0 has the claim and plans; the
// others ask for saves and stops, and report their notices.
//
// Errors: await() as RankChannel. Threads: the training thread.
#pragma once

#include <cstdint>
#include <optional>

#include "holdfast/checkpoint/internal/engine.h"
#include "holdfast/checkpoint/internal/rank_ends.h"
#include "holdfast/checkpoint/internal/share_sender.h"
#include "holdfast/checkpoint/internal/shared_rounds.h"
#include "holdfast/ranks/rank_channel.h"
#include "holdfast/ranks/rank_group.h"
#include "holdfast/ranks/vote_cadence.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class RankVotes {
 public:
  RankVotes(Engine& engine, RankGroup& group, SharedRounds& rounds, const ShareSender& sender)
      : engine_(engine),
        run_(engine.run),
        group_(group),
        rounds_(rounds),
        sender_(sender),
        cadence_(group.world_size()) {}

  // All ranks vote at this boundary of the loop.
  bool at(std::int64_t step) const { return cadence_.votes_at(step); }
  std::int64_t next_step() const { return cadence_.next_step(); }
  void learn_cadence(const Agreed& agreed) { cadence_.learn(agreed); }

  void post(const Plan& plan) { post(vote(plan)); }
  // The vote at the run's end, with what the last save needs.
  void post_last();
  // A vote is posted, and its result not read yet.
  bool pending() const { return pending_; }
  // Requires pending(). `what`: names the vote in the error, if no result arrives.
  Agreed await(const char* what, bool rank_0_may_save = false);

  // Rank 0 learns deadlines of other ranks, by which it plans; the others learn which step is durable.
  void learn(const Agreed& agreed);
  // A rank was told to stop, so this rank stops as well.
  void hear_stop(const Agreed& agreed);
  // In a pause: a last save that has begun is not requested again before that.
  void retry_at(SteadyTime time) { retry_at_ = time; }
  SteadyTime retry_at() const { return retry_at_; }

 private:
  void post(const Vote& vote);
  Vote vote(const Plan& plan) noexcept;
  void vote_as_rank_0(Vote& vote, const Plan& plan) noexcept;
  void vote_on_plan(Vote& vote) const noexcept;
  Duration needed_for_last(bool step_follows) const noexcept;

  Engine& engine_;
  Run& run_;
  RankGroup& group_;
  SharedRounds& rounds_;
  const ShareSender& sender_;
  RankEnds ends_{run_, group_};
  VoteCadence cadence_;
  bool pending_ = false;
  std::uint64_t spoiled_ = 0;  // rank 0: saves that failed because of other ranks, as far as made good
  SteadyTime retry_at_{};
};

}}}  // namespace holdfast::v0_2::internal
