// Applies a learning-rate plan to an optimizer: keeps the position, the base rate of each parameter group and
// a plateau's history, and sets the groups' rates. Example:
//
//   state.add("optimizer", optimizer);                      // first, so that its rate is recorded as chosen
//   holdfast::Schedule schedule(optimizer, RatePlan::warmup(500, RatePlan::cosine(20'000)));
//   state.add("schedule", schedule);
//   optimizer.step(); schedule.step();                      // after each update, before after_step
//
// With the Trainer: .learning_rate = [&](std::int64_t step) { return schedule.apply(step); }
//
// Requires: the optimizer outlives the schedule. Errors: UsageError. Threads: the training thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "holdfast/base/export.h"
#include "holdfast/optim/rate_plan.h"
#include "holdfast/state/stateful.h"

namespace torch::optim {
class Optimizer;
}

namespace holdfast { inline namespace v0_2 {

// A group's base rate is the rate that it has when the schedule first sees it: in the constructor, or after
// add_param_group before resume(). Later groups end the run at the next save, so a group that a later phase
// trains exists from the start, frozen. The constructor sets the rates of the first update.
//
// Stateful: option "lr" (the base rates), "position", the plan's numbers (rate_plan.h), "plateau.…"; with a
// plan for each group these begin with "group0.", "group1." and so on.
// `--override lr` accepts other base rates: the position stays, and the new rate applies from the next update
// on.
class HOLDFAST_EXPORT Schedule {
 public:
  Schedule(torch::optim::Optimizer& optimizer, RatePlan plan);  // one plan for all groups
  // plans[g] is the plan of parameter group g. UsageError if there are more groups than plans.
  Schedule(torch::optim::Optimizer& optimizer, std::vector<RatePlan> plans);

  // Moves to the next step and sets the rates of the update that follows.
  void step() { apply(position_ + 1); }
  // Sets the rates of the update that follows `step` updates. Returns the first group's rate.
  double apply(std::int64_t step);
  // Gives each plan with a plateau the metric, for example after each evaluation, and sets the rates.
  // UsageError if there is none.
  void observe(double metric);

  double learning_rate() const;  // of the first group, for the next update
  std::int64_t position() const { return position_; }
  const RatePlan& plan() const { return plans_.front().plan; }  // of the first group

  static constexpr bool kKnowsNoPosition = true;
  void save(StateWriter& out) const;
  void load(const StateReader& in);

 private:
  struct Planned {
    RatePlan plan;
    PlateauState plateau;
  };
  Schedule(torch::optim::Optimizer& optimizer, std::vector<RatePlan> plans, bool for_each_group);
  std::vector<double> bases() const;
  std::string prefix(std::size_t plan) const;

  torch::optim::Optimizer* optimizer_;
  bool for_each_group_;  // plans_[g] is for group g, else plans_[0] for all
  std::vector<Planned> plans_;
  std::vector<double> bases_;  // of the groups seen up to now
  std::int64_t position_ = 0;
};

}}  // namespace holdfast::v0_2
