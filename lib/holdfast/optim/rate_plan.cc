#include "holdfast/optim/rate_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 {
namespace {

void require(bool condition, const char* what) {
  if (!condition) throw UsageError(std::string("learning-rate plan: ") + what);
}

// Half a cosine from `from` to `to`, with `done` in [0, 1].
double anneal(double from, double to, double done) {
  return to + (from - to) * (1 + std::cos(std::numbers::pi * done)) / 2;
}

double share(std::int64_t step, std::int64_t steps) {
  return static_cast<double>(std::min(step, steps)) / static_cast<double>(steps);
}

}  // namespace

PlateauState observe(const PlateauOptions& options, PlateauState state, double metric) {
  // One formula for both directions of "better".
  const double sign = options.higher_is_better ? 1 : -1;
  // Before the first value everything is an improvement.
  const double best = state.seen ? state.best : -sign * std::numeric_limits<double>::infinity();
  const double goal =
      options.relative ? best * (1 + sign * options.threshold) : best + sign * options.threshold;
  const bool better = options.higher_is_better ? metric > goal : metric < goal;
  if (better) {
    state.best = metric;
    state.seen = true;
    state.bad = 0;
  } else {
    ++state.bad;
  }
  // As PyTorch's ReduceLROnPlateau: while it cools down, bad values do not count.
  if (state.cooling > 0) {
    --state.cooling;
    state.bad = 0;
  }
  if (state.bad > options.patience) {
    state.factor = std::max(state.factor * options.factor, options.floor);
    state.cooling = options.cooldown;
    state.bad = 0;
  }
  return state;
}

RatePlan RatePlan::constant(double factor) {
  require(factor >= 0, "a constant factor must not be negative");
  return {Kind::constant, {{"factor", factor}}};
}

RatePlan RatePlan::step(std::int64_t every, double gamma) {
  require(every > 0, "'every' must be positive");
  require(gamma > 0, "gamma must be positive");
  return {Kind::step, {{"every", every}, {"gamma", gamma}}};
}

RatePlan RatePlan::multi_step(std::vector<std::int64_t> milestones, double gamma) {
  require(std::is_sorted(milestones.begin(), milestones.end()), "milestones must rise");
  require(milestones.empty() || milestones.front() >= 0, "milestones must not be negative");
  require(gamma > 0, "gamma must be positive");
  return {Kind::multi_step, {{"milestones", std::move(milestones)}, {"gamma", gamma}}};
}

RatePlan RatePlan::linear(Length steps, double from, double to) {
  require(steps.steps > 0, "a length must be positive");
  require(from >= 0 && to >= 0, "factors must not be negative");
  return {Kind::linear, {{"steps", steps.steps, steps.chosen}, {"from", from}, {"to", to}}};
}

RatePlan RatePlan::cosine(Length steps, double floor) {
  require(steps.steps > 0, "a length must be positive");
  require(floor >= 0 && floor <= 1, "the cosine's floor must be 0...1");
  return {Kind::cosine, {{"steps", steps.steps, steps.chosen}, {"floor", floor}}};
}

RatePlan RatePlan::one_cycle(Length steps, const OneCycleOptions& options) {
  require(steps.steps > 1, "one_cycle needs at least two steps");
  require(options.rising >= 0 && options.rising <= 1, "the rising part must be 0...1");
  require(options.div > 0 && options.final_div > 0, "divisors must be positive");
  return {Kind::one_cycle,
          {{"steps", steps.steps, steps.chosen},
           {"rising", options.rising},
           {"div", options.div},
           {"final_div", options.final_div}}};
}

RatePlan RatePlan::polynomial(Length steps, double rising, double power) {
  require(steps.steps > 0, "a length must be positive");
  require(rising >= 0 && rising <= 1, "the rising part must be 0...1");
  require(power > 0, "the power must be positive");
  return {Kind::polynomial, {{"steps", steps.steps, steps.chosen}, {"rising", rising}, {"power", power}}};
}

RatePlan RatePlan::plateau(const PlateauOptions& options) {
  require(options.factor > 0 && options.factor < 1, "a plateau's factor must be between 0 and 1");
  require(options.patience >= 0 && options.cooldown >= 0, "patience and cooldown must not be negative");
  require(options.threshold >= 0 && options.floor >= 0 && options.floor <= 1,
          "a plateau's threshold must not be negative, its floor must be 0...1");
  RatePlan plan(Kind::plateau, {{"factor", options.factor},
                                {"patience", options.patience},
                                {"threshold", options.threshold},
                                {"relative", options.relative},
                                {"higher_is_better", options.higher_is_better},
                                {"cooldown", options.cooldown},
                                {"floor", options.floor}});
  plan.plateau_ = options;
  return plan;
}

RatePlan RatePlan::warmup(Length steps, RatePlan after) {
  require(steps.steps >= 0, "a warm-up must not be negative");
  RatePlan plan(Kind::warmup, {{"steps", steps.steps, steps.chosen}});
  plan.parts_.push_back(std::move(after));
  return plan;
}

RatePlan RatePlan::warmup(Length steps, RatePlan after, double start) {
  require(steps.steps >= 0, "a warm-up must not be negative");
  require(start >= 0 && start <= 1, "a warm-up must start between 0 and 1");
  RatePlan plan(Kind::warmup, {{"steps", steps.steps, steps.chosen}, {"start", start}});
  plan.parts_.push_back(std::move(after));
  return plan;
}

RatePlan RatePlan::product(RatePlan first, RatePlan second) {
  require(!first.plateau_options() || !second.plateau_options(),
          "only one factor of a product has a plateau");
  RatePlan plan(Kind::product, {});
  plan.parts_.push_back(std::move(first));
  plan.parts_.push_back(std::move(second));
  return plan;
}

// Computed here, not in warmup(): a resumed run may take over another length.
double RatePlan::warmup_start() const {
  return numbers_.size() > 1 ? real(1) : 1 / (static_cast<double>(whole(0)) + 1);
}

double RatePlan::factor(std::int64_t t, double plateau) const {
  switch (kind_) {
    case Kind::constant:
      return real(0);
    // Computed from the step alone, so a resumed run has the same rate.
    case Kind::step:
      return std::pow(real(1), static_cast<double>(t / whole(0)));
    case Kind::multi_step: {
      const auto& milestones = std::get<std::vector<std::int64_t>>(numbers_[0].value);
      // A milestone counts from its own step on, as in PyTorch's MultiStepLR.
      const auto passed = std::upper_bound(milestones.begin(), milestones.end(), t) - milestones.begin();
      return std::pow(real(1), static_cast<double>(passed));
    }
    case Kind::linear:
      return real(1) + (real(2) - real(1)) * share(t, whole(0));
    case Kind::cosine:
      return anneal(1, real(1), share(t, whole(0)));
    case Kind::one_cycle: {
      const auto last = static_cast<double>(whole(0) - 1);
      // PyTorch's OneCycleLR counts the peak in steps less one.
      const double peak = real(1) * static_cast<double>(whole(0)) - 1;  // in steps; may lie between two steps
      const double at = std::min(static_cast<double>(t), last);
      const double first = 1 / real(2);
      if (at <= peak) return anneal(first, 1, peak > 0 ? at / peak : 1);
      // final_div divides the first rate, not the peak, as in PyTorch's OneCycleLR.
      return anneal(1, first / real(3), (at - peak) / (last - peak));
    }
    case Kind::polynomial: {
      // Counted from 1, as NVIDIA's BERT does, so that the first update has a rate. The power applies to all
      // of the progress, so the rate jumps at the end of the warm-up, as there.
      const double progress = share(t + 1, whole(0));
      return progress < real(1) ? progress / real(1) : std::pow(1 - progress, real(2));
    }
    case Kind::plateau:
      return plateau;
    case Kind::warmup:
      // With a start of 1 / (steps + 1) each step adds the same, the first included.
      if (t < whole(0)) return warmup_start() + (1 - warmup_start()) * share(t, whole(0));
      return parts_.front().factor(t - whole(0), plateau);
    case Kind::product:
      return parts_[0].factor(t, plateau) * parts_[1].factor(t, plateau);
  }
  throw Error("a learning-rate plan of an unknown kind");
}

const PlateauOptions* RatePlan::plateau_options() const {
  if (kind_ == Kind::plateau) return &plateau_;
  for (const RatePlan& part : parts_) {
    if (const PlateauOptions* const found = part.plateau_options()) return found;
  }
  return nullptr;
}

const char* RatePlan::name_of(Kind kind) {
  switch (kind) {
    case Kind::constant:
      return "constant";
    case Kind::step:
      return "step";
    case Kind::multi_step:
      return "multi_step";
    case Kind::linear:
      return "linear";
    case Kind::cosine:
      return "cosine";
    case Kind::one_cycle:
      return "one_cycle";
    case Kind::polynomial:
      return "polynomial";
    case Kind::plateau:
      return "plateau";
    case Kind::warmup:
      return "warmup";
    case Kind::product:
      return "product";
  }
  throw Error("a learning-rate plan of an unknown kind");
}

std::string RatePlan::text() const {
  if (kind_ == Kind::product) return "(" + parts_[0].text() + " * " + parts_[1].text() + ")";
  std::string text = name_of(kind_);
  for (std::size_t i = 0; i < numbers_.size(); ++i) {
    text += (i == 0 ? "(" : ", ") + (numbers_[i].name + ("=" + to_text(numbers_[i].value)));
  }
  text += ")";
  for (const RatePlan& part : parts_) text += " " + part.text();
  return text;
}

std::string RatePlan::prefix_of_part(std::size_t i, const std::string& prefix) const {
  if (kind_ == Kind::warmup) return prefix + "after.";
  return prefix + (i == 0 ? "first." : "second.");
}

void RatePlan::save(StateWriter& out, const std::string& prefix) const {
  out.option(prefix + "kind", std::string(name_of(kind_)));
  for (const Number& number : numbers_) {
    const std::string name = prefix + name_of(kind_) + "." + number.name;
    // Lengths that nobody chose follow from the run's length, which may change on resume.
    number.chosen ? out.option(name, number.value) : out.put(name, number.value);
  }
  for (std::size_t i = 0; i < parts_.size(); ++i) parts_[i].save(out, prefix_of_part(i, prefix));
}

void RatePlan::load(const StateReader& in, const std::string& prefix) {
  for (Number& number : numbers_) {
    const std::string name = prefix + name_of(kind_) + "." + number.name;
    // Missing if another kind of plan was recorded and the user accepted the difference.
    if (number.chosen || !in.has(name)) continue;
    const std::int64_t steps = in.get_int(name);
    // The factories have the same limits. The other plans divide by their length, and one_cycle by its length
    // less one.
    if (steps < (kind_ == Kind::warmup ? 0 : kind_ == Kind::one_cycle ? 2 : 1)) {
      throw RefusedError("the recorded length '" + name + "' is " + std::to_string(steps));
    }
    number.value = steps;
  }
  for (std::size_t i = 0; i < parts_.size(); ++i) parts_[i].load(in, prefix_of_part(i, prefix));
}

}}  // namespace holdfast::v0_2
