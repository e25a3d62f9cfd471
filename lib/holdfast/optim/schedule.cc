#include "holdfast/optim/schedule.h"

#include <torch/optim/optimizer.h>

#include <utility>

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 {

Schedule::Schedule(torch::optim::Optimizer& optimizer, RatePlan plan)
    : optimizer_(&optimizer), plan_(std::move(plan)) {
  if (optimizer.param_groups().empty())
    throw UsageError("the optimizer has no parameter groups to set a rate of");
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

double Schedule::factor() const { return plan_.factor(position_, plateau_.factor); }

double Schedule::apply(std::int64_t step) {
  if (step < 0) throw UsageError("a schedule has no step " + std::to_string(step));
  bases_ = bases();
  position_ = step;
  const double now = factor();
  auto& groups = optimizer_->param_groups();
  // Always base times factor, never the last rate times something: no rounding adds up.
  for (std::size_t g = 0; g < groups.size(); ++g) groups[g].options().set_lr(bases_[g] * now);
  return learning_rate();
}

void Schedule::observe(double metric) {
  const PlateauOptions* const options = plan_.plateau_options();
  if (!options) throw UsageError("only a plan with a plateau observes a metric; this one is " + plan_.text());
  plateau_ = holdfast::observe(*options, plateau_, metric);
  // The new factor counts at once, at the same position.
  apply(position_);
}

double Schedule::learning_rate() const { return optimizer_->param_groups().front().options().get_lr(); }

void Schedule::save(StateWriter& out) const {
  // The bases as an option: another learning rate must be accepted by the user.
  out.option("lr", bases());
  plan_.save(out, "");
  out.put("position", position_);
  // Other plans have no such state, and their checkpoints keep their bytes.
  if (!plan_.plateau_options()) return;
  out.put("plateau.best", plateau_.best);
  out.put("plateau.seen", plateau_.seen);
  out.put("plateau.bad", plateau_.bad);
  out.put("plateau.cooling", plateau_.cooling);
  out.put("plateau.now", plateau_.factor);
}

void Schedule::load(const StateReader& in) {
  RatePlan plan = plan_;
  plan.load(in, "");
  PlateauState plateau;
  if (plan.plateau_options()) {
    plateau = {.best = in.get_double("plateau.best"),
               .seen = in.get_bool("plateau.seen"),
               .bad = in.get_int("plateau.bad"),
               .cooling = in.get_int("plateau.cooling"),
               .factor = in.get_double("plateau.now")};
  }
  const std::int64_t position = in.get_int("position");
  if (position < 0)
    throw RefusedError("the recorded position of the schedule is " + std::to_string(position));
  // Everything was read and checked: the schedule changes only now.
  plan_ = std::move(plan);
  plateau_ = plateau;
  apply(position);
}

}}  // namespace holdfast::v0_2
