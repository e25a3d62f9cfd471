// The end of a run of several ranks: the last save of all, rank 0's report of its outcome, and the end after
// the loss of a rank.
//
// Errors: finish() as RankChannel; exceptions of the source. Threads: the training thread.
#pragma once

#include <functional>

#include "holdfast/checkpoint/internal/engine.h"
#include "holdfast/checkpoint/internal/rank_partners.h"
#include "holdfast/checkpoint/internal/rank_votes.h"
#include "holdfast/checkpoint/internal/share_sender.h"
#include "holdfast/ranks/rank_group.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class RanksEnd {
 public:
  RanksEnd(Engine& engine, RankGroup& group, RankPartners& partners, ShareSender& sender, RankVotes& votes)
      : engine_(engine),
        run_(engine.run),
        group_(group),
        partners_(partners),
        sender_(sender),
        votes_(votes) {}

  void finish();
  // An exception of `work` ends this rank's part in the run, and is rethrown as an Error.
  void or_abandon(const std::function<void()>& work);

 private:
  void part();
  void hear_outcome();
  void abandon(const Error& error) noexcept;

  Engine& engine_;
  Run& run_;
  RankGroup& group_;
  RankPartners& partners_;
  ShareSender& sender_;
  RankVotes& votes_;
};

}}}  // namespace holdfast::v0_2::internal
