// A run of several ranks that train one state together. About once a second every rank votes at the same step
// boundary (ranks/vote_cadence.h), and acts at the next one on the result of all votes
// (ranks/rank_channel.h). Other boundaries cost as little as those of a single process.
//
// Errors: as RanksOptions. An exception from at_boundary() or finish() ends this rank's part in the run.
// Threads: the training thread.
#pragma once

#include <optional>
#include <string>

#include "holdfast/checkpoint/internal/engine.h"
#include "holdfast/checkpoint/internal/ensemble.h"
#include "holdfast/checkpoint/internal/rank_partners.h"
#include "holdfast/checkpoint/internal/rank_votes.h"
#include "holdfast/checkpoint/internal/ranks_end.h"
#include "holdfast/checkpoint/internal/share_sender.h"
#include "holdfast/ranks/rank_group.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class Ranks final : public Ensemble {
 public:
  Ranks(Engine& engine, RankGroup& group, RankPartners& partners);

  void read_ahead() override;
  std::optional<Peeked> peek() override;
  Resumed resume() override;
  void at_boundary(Decision& decision) override;
  bool tick() override;
  SaveHandle save() override;
  void save_best(const std::string& name, double value) override;
  void enter_evaluation() override;
  void leave_evaluation(bool thrown_out) override;
  void finish() override { end_.finish(); }
  void leave() noexcept override;
  void leave_write_behind() noexcept override { group_.part(); }

 private:
  void lay_out();
  void vote_at_boundary(Decision& decision);
  void hold_last_boundary();
  void act(Decision& decision, const Agreed& agreed);
  void stop(Decision& decision, const Agreed& agreed);
  void save(Decision& decision, const Agreed& agreed, const Plan& plan, bool last_one);
  void pause(Decision& decision, Plan plan, Agreed agreed);

  Engine& engine_;
  Run& run_;
  RankGroup& group_;
  RankPartners& partners_;
  SharedRounds& rounds_;
  ShareSender sender_;
  RankVotes votes_;
  RanksEnd end_;
  int peeks_ = 0;
};

}}}  // namespace holdfast::v0_2::internal
