// The other ranks' part in a save of this one (SavePartners): they write shares of the file, or send rank 0
// their own state.
//
// Errors and threads: as SavePartners.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "holdfast/checkpoint/internal/save_partners.h"
#include "holdfast/checkpoint/internal/shared_rounds.h"
#include "holdfast/ranks/rank_group.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class RankPartners final : public SavePartners {
 public:
  RankPartners(Run& run, RankGroup& group) : run_(run), group_(group), rounds_(run, group) {}

  SharedRounds& rounds() { return rounds_; }
  // Collects on rank 0 the state of which other ranks hold parts. Collective. It waits for the others, and
  // that wait is part of the save's cost.
  void bring_together();
  // Rank 0: a value among the best. All ranks can save only after the next vote, when its step has passed;
  // that later checkpoint counts for the value.
  void note_best(const std::string& name, double value) { best_[name] = value; }
  // An evaluation begins, at the same step on all ranks. Returns the name of the text with a rank's own state
  // there. Names count the evaluations of a step, so that each image gets the state that belongs to it.
  std::string next_evaluation();
  // Outcomes of a stop or of the run's end.
  void end_without_save(bool so = true) { hopeless_ = so; }
  void find_torn(int rank) { torn_rank_ = rank; }
  // Rank 0, after a failed last save: which other rank was told to stop after the last vote; empty: none.
  std::string told_to_stop() noexcept;
  bool asked() const { return asked_; }  // told_to_stop() has asked the others

  bool leads() const override { return group_.leads(); }
  void heard(const Notice& notice) noexcept override;
  bool call() const noexcept override { return group_.channel().called(); }
  bool may_call() const noexcept override { return group_.leads(); }
  std::int64_t plan() const override { return rounds_.plan(); }
  void add_values(Measurements& measurements) override;
  void join(WriteRequest& request, Staged& staged) override;
  void joined() noexcept override { rounds_.handed_over(); }
  void lift_limit() noexcept override { group_.lift_limit(); }
  void restore_limit() noexcept override;
  std::string lacking(const ImageLayout& layout) const override;
  bool complete(BoundaryShelf& shelf) noexcept override;
  bool usual() const noexcept override { return !group_.sharing(); }
  void committed_from_shelf(const BegunSave& save) override { run_.outlook.answered_by(save); }
  int torn_rank() const override { return torn_rank_; }
  bool hopeless() const override { return hopeless_; }
  void last_save_begun() noexcept override { rounds_.end({}); }
  void last_save_again() noexcept override {
    group_.patience().end_by(group_.end().value_or(SteadyTime::max()));
  }
  bool holds_all() const override { return false; }
  std::shared_ptr<Snapshot> part_of(std::shared_ptr<Snapshot> whole) const override;

 private:
  std::function<void()> bring_own_of_others(const Snapshot& snapshot) const;

  Run& run_;
  RankGroup& group_;
  SharedRounds rounds_;
  std::map<std::string, double> best_;
  std::int64_t evaluated_ = -1;  // the step of the last evaluation
  int evaluations_ = 0;          // earlier ones at that step
  bool hopeless_ = false;        // the same on all ranks
  int torn_rank_ = -1;
  bool asked_ = false;
};

}}}  // namespace holdfast::v0_2::internal
