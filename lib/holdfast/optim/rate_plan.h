// Learning rates as pure functions of the step. factor(step) multiplies a group's base rate for the update
// that follows `step` updates (0 for the first update). Plans are values and compose:
//
//   RatePlan plan = RatePlan::warmup(500, RatePlan::cosine(20'000, 0.01));
//
// The formulas are those of torch.optim.lr_scheduler in closed form (pytorch.org/docs/stable/optim.html); its
// "last_epoch" is `step` here. Unlike there, a plan that has reached its end stays there.
//
// Errors: UsageError for numbers out of range. Threads: a plain value.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/base/export.h"
#include "holdfast/state/stateful.h"

namespace holdfast { inline namespace v0_2 {

// A number of steps. A plain number is the user's choice: an option, compared on resume. A length that was
// computed from the final step must not be compared, because a resumed run may be longer. Length::derived(n)
// marks it: it is recorded, and a resumed run keeps the recorded one.
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

// Defaults are those of torch.optim.lr_scheduler.
struct OneCycleOptions {
  double rising = 0.3;     // share of the steps in which the rate rises (pct_start)
  double div = 25;         // the first rate is base / div
  double final_div = 1e4;  // the last rate is base / (div * final_div)
};

// Defaults are those of torch.optim.lr_scheduler.
struct PlateauOptions {
  double factor = 0.1;         // a reduction multiplies the rate by this
  std::int64_t patience = 10;  // number of observations without improvement before a reduction
  double threshold = 1e-4;     // smallest change that counts as an improvement
  // The threshold is relative to the best value; false: absolute.
  bool relative = true;
  bool higher_is_better = false;
  std::int64_t cooldown = 0;  // observations after a reduction that are ignored
  double floor = 0;           // smallest factor
};

// History of a plateau.
struct PlateauState {
  double best = 0;
  bool seen = false;         // `best` has a value
  std::int64_t bad = 0;      // observations in a row without improvement
  std::int64_t cooling = 0;  // observations of the cooldown that are left
  double factor = 1;
  bool operator==(const PlateauState&) const = default;
};
// Adds one observation. NaN is never an improvement.
HOLDFAST_EXPORT PlateauState observe(const PlateauOptions& options, PlateauState state, double metric);

class HOLDFAST_EXPORT RatePlan {
 public:
  // In the formulas t is the step and n is `steps`.
  //
  // factor = f. ConstantLR without an end.
  static RatePlan constant(double factor = 1);
  // factor = gamma^floor(t / every). StepLR.
  static RatePlan step(std::int64_t every, double gamma = 0.1);
  // factor = gamma^(number of milestones <= t). MultiStepLR.
  static RatePlan multi_step(std::vector<std::int64_t> milestones, double gamma = 0.1);
  // factor = from + (to - from) min(t, n) / n. LinearLR.
  static RatePlan linear(Length steps, double from, double to);
  // factor = floor + (1 - floor) (1 + cos(pi min(t, n) / n)) / 2. CosineAnnealingLR with eta_min = floor *
  // base; SGDR, Loshchilov and Hutter 2017.
  static RatePlan cosine(Length steps, double floor = 0);
  // Half a cosine from 1 / div up to 1, then half a cosine down to 1 / (div final_div). OneCycleLR with two
  // phases, without its momentum; Smith and Topin 2018.
  static RatePlan one_cycle(Length steps, const OneCycleOptions& options = {});
  // p / rising while p < rising, then (1 - p)^power, with p = min(t + 1, n) / n: BERT's schedule with LAMB
  // (NVIDIA's PolyWarmUpScheduler). At the border it jumps: with rising 0.2843 and power 0.5 from 1 down to
  // 0.846. Update n has rate 0. `rising` is a share of the steps, 0 to 1. BERT-Large: 7038 steps at a rate of
  // 6e-3 with rising 0.2843, then 1563 at 4e-3 with rising 0.128.
  static RatePlan polynomial(Length steps, double rising, double power = 0.5);
  // The factor that the observed metrics gave, see observe(). ReduceLROnPlateau without eps.
  static RatePlan plateau(const PlateauOptions& options = {});
  // start + (1 - start) t / n while t < n, then `after` at step t - n: SequentialLR of LinearLR and `after`.
  // The default start is 1 / (n + 1): no update has rate zero, and update n + 1 is the first at the full
  // rate.
  static RatePlan warmup(Length steps, RatePlan after);
  static RatePlan warmup(Length steps, RatePlan after, double start);
  // factor = factor of `first` times factor of `second`, such as a plateau and steps. UsageError if both have
  // a plateau.
  static RatePlan product(RatePlan first, RatePlan second);

  // Requires step >= 0. `plateau`: the present factor of the plan's plateau, if it has one.
  double factor(std::int64_t step, double plateau = 1) const;
  // The plan's plateau options; nullptr if it has no plateau.
  const PlateauOptions* plateau_options() const;
  std::string text() const;  // for people: "warmup(steps=500) cosine(steps=20000, floor=0.01)"

  // Attributes "<prefix><kind>.<number>" of a component. load() takes over derived lengths.
  void save(StateWriter& out, const std::string& prefix) const;
  void load(const StateReader& in, const std::string& prefix);

 private:
  enum class Kind {
    constant,
    step,
    multi_step,
    linear,
    cosine,
    one_cycle,
    polynomial,
    plateau,
    warmup,
    product
  };
  struct Number {
    const char* name;
    AttributeValue value;
    bool chosen = true;
  };
  RatePlan(Kind kind, std::vector<Number> numbers) : kind_(kind), numbers_(std::move(numbers)) {}
  double warmup_start() const;
  std::string prefix_of_part(std::size_t i, const std::string& prefix) const;
  static const char* name_of(Kind kind);
  double real(std::size_t index) const { return std::get<double>(numbers_[index].value); }
  std::int64_t whole(std::size_t index) const { return std::get<std::int64_t>(numbers_[index].value); }

  Kind kind_;
  std::vector<Number> numbers_;
  PlateauOptions plateau_;       // for kind plateau
  std::vector<RatePlan> parts_;  // of kind warmup: what comes after; of kind product: its two factors
};

}}  // namespace holdfast::v0_2
