// Learning rates as pure functions of the step: factor(step) is what the group's base rate is multiplied with
// for the update that follows `step` updates (0 for the first). Plans are values and compose:
//
//   RatePlan plan = RatePlan::warmup(500, RatePlan::cosine(20'000, 0.01));
//
// The formulas are those of torch.optim.lr_scheduler in closed form (pytorch.org/docs/stable/optim.html;
// "last_epoch" there is `step` here), except that a plan that has come to its end stays there. For t = step:
//
//   constant    f                                               ConstantLR without an end
//   step        gamma^floor(t / every)                          StepLR
//   multi_step  gamma^(number of milestones <= t)               MultiStepLR
//   linear      from + (to - from) min(t, n) / n                LinearLR
//   cosine      floor + (1 - floor) (1 + cos(pi min(t, n) / n)) / 2
//                                                               CosineAnnealingLR, eta_min = floor * base
//                                                               (SGDR, Loshchilov and Hutter 2017)
//   one_cycle   half a cosine from 1/div up to 1, then one down to 1/(div final_div)
//                                                               OneCycleLR (Smith and Topin 2018) with
//                                                               two phases; rates only, no momentum
//   warmup      start + (1 - start) t / n while t < n, then `after` at t - n
//                                                               SequentialLR of LinearLR and `after`
//   polynomial  p / rising while p < rising, else (1 - p)^power, for p = min(t + 1, n) / n: BERT's with LAMB
//               (NVIDIA's PolyWarmUpScheduler). Where the two meet it leaps: with rising 0.2843 and power 0.5
//               from 1 down to 0.846. The n-th update has rate 0.
//   plateau     what the metrics told: observe() below          ReduceLROnPlateau without eps
//
// Lengths. A run may be made longer on resume, so a length that was derived from the final step must not
// decide the next step. `Length::derived(n)` says so: it is recorded, not compared, and a resumed run keeps
// the recorded one. A plain number is the user's choice: an option, compared on resume.
//
// Errors: UsageError for numbers out of range.
// Threads: a plain value.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/state/stateful.h"

namespace holdfast::inline v1 {

// A number of steps.
struct Length {
  Length(std::int64_t count) : steps(count) {}  // NOLINT(google-explicit-constructor): a plain number is one
  static Length derived(std::int64_t count) {
    Length length(count);
    length.chosen = false;
    return length;
  }
  std::int64_t steps;
  bool chosen = true;
};

struct OneCycleOptions {
  double rising = 0.3;     // the part of the steps in which the rate rises (pct_start)
  double div = 25;         // the first rate is base / div
  double final_div = 1e4;  // the last one is base / (div * final_div)
};

struct PlateauOptions {
  double factor = 0.1;         // what a reduction multiplies the rate with
  std::int64_t patience = 10;  // observations without improvement that are forgiven
  double threshold = 1e-4;     // what counts as improvement, relative or absolute
  bool relative = true;
  bool higher_is_better = false;
  std::int64_t cooldown = 0;  // observations after a reduction that do not count
  double floor = 0;           // the factor never falls below this
};

// What the metrics have told so far.
struct PlateauState {
  double best = 0;
  bool seen = false;  // `best` means something
  std::int64_t bad = 0;
  std::int64_t cooling = 0;
  double factor = 1;
  bool operator==(const PlateauState&) const = default;
};
// One more observation; NaN is never an improvement.
PlateauState observe(const PlateauOptions& options, PlateauState state, double metric);

class RatePlan {
 public:
  static RatePlan constant(double factor = 1);
  static RatePlan step(std::int64_t every, double gamma = 0.1);
  static RatePlan multi_step(std::vector<std::int64_t> milestones, double gamma = 0.1);
  static RatePlan linear(Length steps, double from, double to);
  static RatePlan cosine(Length steps, double floor = 0);
  static RatePlan one_cycle(Length steps, const OneCycleOptions& options = {});
  // `rising` is a part of the steps, 0...1. BERT-Large's phases: 7038 steps from a rate of 6e-3, rising
  // 0.2843, then 1563 from 4e-3, rising 0.128.
  static RatePlan polynomial(Length steps, double rising, double power = 0.5);
  static RatePlan plateau(const PlateauOptions& options = {});
  // From base * start up to base in n steps, then `after`. Default start: 1 / (n + 1), so that no update is
  // wasted on a rate of zero and update n + 1 is the first at full rate.
  static RatePlan warmup(Length steps, RatePlan after);
  static RatePlan warmup(Length steps, RatePlan after, double start);

  // Requires step >= 0. `plateau` is the factor of the plan's plateau, where it has one.
  double factor(std::int64_t step, double plateau = 1) const;
  // The plan's plateau options; nullptr without one.
  const PlateauOptions* plateau_options() const;
  std::string text() const;  // for people: "warmup(steps=500) cosine(steps=20000, floor=0.01)"

  // As a component's attributes "<prefix><kind>.<number>"; load() adopts derived lengths.
  void save(StateWriter& out, const std::string& prefix) const;
  void load(const StateReader& in, const std::string& prefix);

 private:
  enum class Kind { constant, step, multi_step, linear, cosine, one_cycle, polynomial, plateau, warmup };
  struct Number {
    const char* name;
    AttributeValue value;
    bool chosen = true;
  };
  RatePlan(Kind kind, std::vector<Number> numbers) : kind_(kind), numbers_(std::move(numbers)) {}
  double warmup_start() const;
  static const char* name_of(Kind kind);
  double real(std::size_t index) const { return std::get<double>(numbers_[index].value); }
  std::int64_t whole(std::size_t index) const { return std::get<std::int64_t>(numbers_[index].value); }

  Kind kind_;
  std::vector<Number> numbers_;
  PlateauOptions plateau_;       // of kind plateau
  std::vector<RatePlan> after_;  // of kind warmup: one
};

}  // namespace holdfast::inline v1
