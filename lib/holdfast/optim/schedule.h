// A learning-rate plan at work on an optimizer: keeps the position, the base rate of every parameter group
// and a plateau's history, and sets the groups' rates. Stateful: add it to a TrainState.
//
//   torch::optim::SGD optimizer(net->parameters(), 0.1);
//   state.add("optimizer", optimizer);                      // first, so that 0.1 is recorded as chosen
//   holdfast::Schedule schedule(optimizer, RatePlan::warmup(500, RatePlan::cosine(20'000)));
//   state.add("schedule", schedule);
//   …
//   optimizer.step(); schedule.step();                      // door 2: after each update, before after_step
//   .learning_rate = [&](std::int64_t step) { return schedule.apply(step); }  // or the Trainer: before each
//
// A group's base rate is the rate it has when the schedule first sees it: in the constructor, or after
// add_param_group. The constructor sets the rates of the first update.
//
// Attributes: option "lr" (the base rates), the plan's numbers (rate_plan.h), "position", "plateau.…". So
// `--override lr` accepts another base rate; the position stays, the new rate counts from the next update on.
//
// Requires: the optimizer outlives the schedule.
// Threads: the training thread.
#pragma once

#include <cstdint>
#include <vector>

#include "holdfast/optim/rate_plan.h"
#include "holdfast/state/stateful.h"

namespace torch::optim {
class Optimizer;
}

namespace holdfast::inline v1 {

class Schedule {
 public:
  Schedule(torch::optim::Optimizer& optimizer, RatePlan plan);

  // Moves to the next step and sets the rates of the update that follows.
  void step() { apply(position_ + 1); }
  // Sets the rates of the update that follows `step` updates; returns the first group's.
  double apply(std::int64_t step);
  // Tells a plateau how the metric stands, say after each evaluation, and sets the rates anew. UsageError for
  // a plan without a plateau.
  void observe(double metric);

  double learning_rate() const;  // of the first group, for the next update
  std::int64_t position() const { return position_; }
  const RatePlan& plan() const { return plan_; }

  void save(StateWriter& out) const;
  void load(const StateReader& in);

 private:
  std::vector<double> bases() const;
  double factor() const;

  torch::optim::Optimizer* optimizer_;
  RatePlan plan_;
  std::vector<double> bases_;  // of the groups seen so far
  std::int64_t position_ = 0;
  PlateauState plateau_;
};

}  // namespace holdfast::inline v1
