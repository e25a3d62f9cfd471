#include "schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace example {
namespace {

constexpr double kFloor = 0.01;
constexpr std::int64_t kWarmupShare = 20;

std::int64_t planned_steps(const Options& options, std::int64_t updates_per_epoch) {
  if (options.schedule_steps) return *options.schedule_steps;
  std::int64_t epochs = options.epochs.value_or(options.default_epochs);
  if (options.steps) {
    epochs = std::max(epochs, (*options.steps + updates_per_epoch - 1) / updates_per_epoch);
  }
  return epochs * updates_per_epoch;
}

}  // namespace

Schedule::Schedule(const Options& options, std::int64_t updates_per_epoch)
    : kind_(options.schedule),
      peak_(options.lr),
      steps_(planned_steps(options, updates_per_epoch)),
      warmup_steps_(options.warmup_steps.value_or(steps_ / kWarmupShare)),
      steps_given_(options.schedule_steps.has_value()),
      warmup_given_(options.warmup_steps.has_value()) {}

double Schedule::learning_rate(std::int64_t step) const {
  if (step < warmup_steps_) {
    return peak_ * static_cast<double>(step + 1) / static_cast<double>(warmup_steps_ + 1);
  }
  if (kind_ == ScheduleKind::constant || steps_ <= warmup_steps_) return peak_;
  const double done =
      std::min(1.0, static_cast<double>(step - warmup_steps_) / static_cast<double>(steps_ - warmup_steps_));
  return peak_ * (kFloor + (1 - kFloor) * (1 + std::cos(std::numbers::pi * done)) / 2);
}

void Schedule::save(holdfast::StateWriter& out) const {
  out.option("kind", name_of(kind_));
  const auto write = [&](const char* name, std::int64_t value, bool given) {
    given ? out.option(name, value) : out.put(name, value);
  };
  write("schedule_steps", steps_, steps_given_);
  write("warmup_steps", warmup_steps_, warmup_given_);
}

void Schedule::load(const holdfast::StateReader& in) {
  if (!steps_given_) steps_ = in.get_int("schedule_steps");
  if (!warmup_given_) warmup_steps_ = in.get_int("warmup_steps");
}

std::int64_t final_step(const Options& options, std::int64_t updates_per_epoch) {
  if (options.steps) return *options.steps;
  return options.epochs.value_or(options.default_epochs) * updates_per_epoch;
}

}  // namespace example
