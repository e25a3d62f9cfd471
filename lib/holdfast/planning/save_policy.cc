#include "holdfast/planning/save_policy.h"

#include <algorithm>

#include "holdfast/base/error.h"
#include "holdfast/base/text.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// After a first save that failed or is still being written.
constexpr Duration kUnmeasured = std::chrono::minutes(1);

void check(const SaveEvery& trigger) {
  if (!trigger.time && !trigger.step_count && !trigger.chosen) {
    throw UsageError("a save interval is empty; give a time (5min), a number of steps (500steps), or auto");
  }
  if (trigger.time && *trigger.time <= Duration::zero()) {
    throw UsageError("the save interval " + std::to_string(trigger.time->count()) +
                     " ns is not positive; give for instance 5min");
  }
  if (trigger.step_count && *trigger.step_count <= 0) {
    throw UsageError("the save interval of " + std::to_string(*trigger.step_count) +
                     " steps is not positive; give at least 1");
  }
  if (!trigger.chosen) return;
  const IntervalLimits& limits = *trigger.chosen;
  // Negated, so that NaN is refused as well.
  if (!(limits.stall_budget > 0 && limits.stall_budget <= 1)) {
    throw UsageError("the budget of an automatic save interval is " + format_number(limits.stall_budget) +
                     "; give a share of the training time such as 0.01");
  }
  if (limits.shortest <= Duration::zero() || limits.longest < limits.shortest) {
    throw UsageError("an automatic save interval has no room between " + format_duration(limits.shortest) +
                     " and " + format_duration(limits.longest));
  }
}

}  // namespace

SaveEvery SaveEvery::steps(std::int64_t count) {
  SaveEvery trigger;
  trigger.step_count = count;
  return trigger;
}

SaveEvery SaveEvery::automatic(IntervalLimits limits) {
  SaveEvery trigger;
  trigger.chosen = limits;
  return trigger;
}

std::optional<SaveEvery> parse_save_every(std::string_view text) {
  if (text == "auto") return SaveEvery::automatic();
  // "steps" before "step", so that the longer word is taken off.
  for (const std::string_view unit : {"steps", "step"}) {
    if (!text.ends_with(unit)) continue;
    const auto count = parse_int(text.substr(0, text.size() - unit.size()));
    return count && *count > 0 ? std::optional(SaveEvery::steps(*count)) : std::nullopt;
  }
  const auto time = parse_duration(text);
  return time && *time > Duration::zero() ? std::optional(SaveEvery(*time)) : std::nullopt;
}

SavePolicy::SavePolicy(const std::vector<SaveEvery>& triggers, SteadyTime start, std::int64_t step)
    : start_(start), last_time_(start), last_step_(step) {
  for (const SaveEvery& every : triggers) {
    check(every);
    Trigger trigger{every, every.time};
    if (every.chosen) {
      automatic_ = true;
      // Until the first save is measured, its cost is unknown.
      trigger.time = std::clamp(kUnmeasured, every.chosen->shortest, every.chosen->longest);
    }
    triggers_.push_back(trigger);
  }
}

bool SavePolicy::due(SteadyTime now, std::int64_t step) const {
  return first_due(now) || triggered(now, step);
}

bool SavePolicy::first_due(SteadyTime now) const {
  // The first save measures what a save costs, before a notice needs to know.
  return !saved_ && !triggers_.empty() && now - start_ >= kFirstSave;
}

// While the machine is at risk, every interval is halved.
int SavePolicy::parts(SteadyTime now) const { return hurry_until_ && now < *hurry_until_ ? 2 : 1; }

std::optional<std::int64_t> SavePolicy::next_due_step(SteadyTime now) const {
  const int part = parts(now);
  std::optional<std::int64_t> next;
  for (const Trigger& trigger : triggers_) {
    if (!trigger.every.step_count) continue;
    // Rounded up, so that half of one step is still a step.
    const std::int64_t step = last_step_ + (*trigger.every.step_count + part - 1) / part;
    if (!next || step < *next) next = step;
  }
  return next;
}

std::optional<SteadyTime> SavePolicy::next_due_time(SteadyTime now) const {
  std::optional<SteadyTime> next;
  const auto consider = [&](SteadyTime when) { next = next ? std::min(*next, when) : when; };
  if (!saved_ && !triggers_.empty()) consider(start_ + kFirstSave);
  for (const Trigger& trigger : triggers_) {
    if (trigger.time) consider(last_time_ + *trigger.time / parts(now));
  }
  return next;
}

bool SavePolicy::triggered(SteadyTime now, std::int64_t step) const {
  const auto due_step = next_due_step(now);
  if (due_step && step >= *due_step) return true;
  return std::any_of(triggers_.begin(), triggers_.end(), [&](const Trigger& trigger) {
    return trigger.time && now - last_time_ >= *trigger.time / parts(now);
  });
}

void SavePolicy::saved(SteadyTime now, std::int64_t step) {
  // An early first save must not move the multiples: `--every 20steps` still saves at 20, 40, and so on.
  const bool early = first_due(now) && !triggered(now, step);
  saved_ = true;
  last_time_ = now;
  if (!early) last_step_ = step;
}

void SavePolicy::learn(const std::vector<MachineLife>& lives) { hazard_ = hazard_of(lives); }

void SavePolicy::measured(const SaveCost& cost) {
  for (Trigger& trigger : triggers_) {
    if (!trigger.every.chosen) continue;
    trigger.time = plan_interval(cost, hazard_, *trigger.every.chosen);
  }
}

std::optional<Duration> SavePolicy::chosen_interval() const {
  for (const Trigger& trigger : triggers_) {
    if (trigger.every.chosen) return trigger.time;
  }
  return std::nullopt;
}

std::optional<Duration> SavePolicy::interval(Duration step) const {
  std::optional<Duration> shortest;
  const auto consider = [&](Duration time) { shortest = shortest ? std::min(*shortest, time) : time; };
  for (const Trigger& trigger : triggers_) {
    if (trigger.time) consider(*trigger.time);
    // As a floating-point product, because a huge number of steps is a way to say never.
    if (trigger.every.step_count && step > Duration::zero()) {
      const double time =
          static_cast<double>(*trigger.every.step_count) * std::chrono::duration<double>(step).count();
      if (time < std::chrono::duration<double>(Duration::max()).count())
        consider(std::chrono::duration_cast<Duration>(std::chrono::duration<double>(time)));
    }
  }
  return shortest;
}

void SavePolicy::hurry_until(SteadyTime until) {
  // Only ever longer: a second warning must not shorten what the first one asked for.
  hurry_until_ = std::max(hurry_until_.value_or(until), until);
}

}}  // namespace holdfast::v0_2
