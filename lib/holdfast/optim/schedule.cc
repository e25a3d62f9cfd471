#include "holdfast/optim/schedule.h"

#include <torch/optim/optimizer.h>

#include <utility>

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 {

Schedule::Schedule(torch::optim::Optimizer& optimizer, RatePlan plan)
    : Schedule(optimizer, std::vector{std::move(plan)}, false) {}

Schedule::Schedule(torch::optim::Optimizer& optimizer, std::vector<RatePlan> plans)
    : Schedule(optimizer, std::move(plans), true) {}

Schedule::Schedule(torch::optim::Optimizer& optimizer, std::vector<RatePlan> plans, bool for_each_group)
    : optimizer_(&optimizer), for_each_group_(for_each_group) {
  if (optimizer.param_groups().empty())
    throw UsageError("the optimizer has no parameter groups to set a rate of");
  for (RatePlan& plan : plans) plans_.push_back({std::move(plan), {}});
  // The optimizer has its base rate until then, and the first step may want another.
  apply(0);
}

std::vector<double> Schedule::bases() const {
  std::vector<double> bases = bases_;
  const auto& groups = optimizer_->param_groups();
  // A group that was added later begins with its present rate.
  for (std::size_t g = bases.size(); g < groups.size(); ++g) bases.push_back(groups[g].options().get_lr());
  // A program may have removed groups.
  bases.resize(groups.size());
  return bases;
}

std::string Schedule::prefix(std::size_t plan) const {
  return for_each_group_ ? "group" + std::to_string(plan) + "." : "";
}

double Schedule::apply(std::int64_t step) {
  if (step < 0) throw UsageError("a schedule has no step " + std::to_string(step));
  auto& groups = optimizer_->param_groups();
  if (for_each_group_ && groups.size() > plans_.size()) {
    throw UsageError("the optimizer has " + std::to_string(groups.size()) +
                     " parameter groups and the schedule " + std::to_string(plans_.size()) +
                     " plans: give each group one");
  }
  bases_ = bases();
  position_ = step;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const Planned& of_group = plans_[for_each_group_ ? g : 0];
    // Always base times factor, never the last rate times something: no rounding adds up.
    groups[g].options().set_lr(bases_[g] * of_group.plan.factor(position_, of_group.plateau.factor));
  }
  return learning_rate();
}

void Schedule::observe(double metric) {
  bool observed = false;
  for (Planned& planned : plans_) {
    if (const PlateauOptions* const options = planned.plan.plateau_options()) {
      planned.plateau = holdfast::observe(*options, planned.plateau, metric);
      observed = true;
    }
  }
  if (!observed)
    throw UsageError("only a plan with a plateau observes a metric; this one is " + plan().text());
  // The new factor counts at once, at the same position.
  apply(position_);
}

double Schedule::learning_rate() const { return optimizer_->param_groups().front().options().get_lr(); }

void Schedule::save(StateWriter& out) const {
  // The bases as an option: another learning rate must be accepted by the user.
  out.option("lr", bases());
  for (std::size_t i = 0; i < plans_.size(); ++i) plans_[i].plan.save(out, prefix(i));
  out.put("position", position_);
  for (std::size_t i = 0; i < plans_.size(); ++i) {
    // Other plans have no such state.
    if (!plans_[i].plan.plateau_options()) continue;
    const std::string plateau = prefix(i) + "plateau.";
    out.put(plateau + "best", plans_[i].plateau.best);
    out.put(plateau + "seen", plans_[i].plateau.seen);
    out.put(plateau + "bad", plans_[i].plateau.bad);
    out.put(plateau + "cooling", plans_[i].plateau.cooling);
    out.put(plateau + "now", plans_[i].plateau.factor);
  }
}

void Schedule::load(const StateReader& in) {
  std::vector<Planned> plans = plans_;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    plans[i].plan.load(in, prefix(i));
    plans[i].plateau = {};
    if (!plans[i].plan.plateau_options()) continue;
    const std::string plateau = prefix(i) + "plateau.";
    plans[i].plateau = {.best = in.get_double(plateau + "best"),
                        .seen = in.get_bool(plateau + "seen"),
                        .bad = in.get_int(plateau + "bad"),
                        .cooling = in.get_int(plateau + "cooling"),
                        .factor = in.get_double(plateau + "now")};
  }
  const std::int64_t position = in.get_int("position");
  if (position < 0)
    throw RefusedError("the recorded position of the schedule is " + std::to_string(position));
  // Everything was read and checked: the schedule changes only now.
  plans_ = std::move(plans);
  apply(position);
}

}}  // namespace holdfast::v0_2
