// When to save: after a time or a number of steps, whichever comes first, or at intervals chosen from the
// cost of saves and the lifetimes of machines (interval_planner.h). Times count from the start of the last
// save, so saves never queue on a slow disk.
//
// With any trigger, the first save comes kFirstSave after the start or earlier: a notice must find the cost
// of a save measured. This save does not move the steps at which a trigger by steps falls due.
//
// Errors: the constructor throws UsageError. Threads: one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/base/export.h"
#include "holdfast/planning/interval_planner.h"

namespace holdfast { inline namespace v0_2 {

// One trigger.
struct HOLDFAST_EXPORT SaveEvery {
  std::optional<Duration> time;
  std::optional<std::int64_t> step_count;
  std::optional<IntervalLimits> chosen;

  SaveEvery() = default;
  template <class Rep, class Period>
  SaveEvery(std::chrono::duration<Rep, Period> t)
      : time(std::chrono::duration_cast<Duration>(t)) {}  // NOLINT
  static SaveEvery steps(std::int64_t count);
  // Saves early to measure the cost of a save, then at the best interval.
  static SaveEvery automatic(IntervalLimits limits = {});
};

// The triggers of a run; the first that falls due decides. `.every = 5min`, `.every = SaveEvery::steps(500)`,
// `.every = {10min, SaveEvery::steps(500)}`; `{}`: none.
class SaveTriggers : public std::vector<SaveEvery> {
 public:
  SaveTriggers() = default;
  // NOLINTBEGIN(google-explicit-constructor): one trigger is a list of one
  SaveTriggers(SaveEvery trigger) : std::vector<SaveEvery>{trigger} {}
  template <class Rep, class Period>
  SaveTriggers(std::chrono::duration<Rep, Period> time) : std::vector<SaveEvery>{SaveEvery(time)} {}
  SaveTriggers(std::initializer_list<SaveEvery> triggers) : std::vector<SaveEvery>(triggers) {}
  SaveTriggers(std::vector<SaveEvery> triggers) : std::vector<SaveEvery>(std::move(triggers)) {}
  // NOLINTEND(google-explicit-constructor)
};

// Parses "5min", "500steps" or "auto"; nullopt for anything else.
HOLDFAST_EXPORT std::optional<SaveEvery> parse_save_every(std::string_view text);

class HOLDFAST_EXPORT SavePolicy {
 public:
  // Within half a minute of the start where a step takes up to 10 s.
  static constexpr Duration kFirstSave = std::chrono::seconds(20);

  // UsageError for an interval that is not positive, or for contradictory limits.
  SavePolicy(const std::vector<SaveEvery>& triggers, SteadyTime start, std::int64_t step);

  bool due(SteadyTime now, std::int64_t step) const;
  // The step at which a trigger by steps falls due next; nullopt without one.
  std::optional<std::int64_t> next_due_step(SteadyTime now) const;
  // When a trigger by time falls due next; nullopt without one. May lie in the past.
  std::optional<SteadyTime> next_due_time(SteadyTime now) const;
  void saved(SteadyTime now, std::int64_t step);

  // True if the following calls have an effect.
  bool automatic() const { return automatic_; }
  // The machines' lives so far, this one's included. Counts from the next measured() on.
  void learn(const std::vector<MachineLife>& lives);
  // The measured cost of a save. Chooses the next interval.
  void measured(const SaveCost& cost);
  // The current interval; nullopt without an automatic trigger.
  std::optional<Duration> chosen_interval() const;
  // The shortest interval of all triggers, if a step takes that long; nullopt: no trigger, or one by steps
  // alone, and no step was measured.
  std::optional<Duration> interval(Duration step) const;

  // The machine is at risk: until `until`, every interval (of steps too) is half as long.
  void hurry_until(SteadyTime until);

 private:
  struct Trigger {
    SaveEvery every;
    std::optional<Duration> time;  // configured or chosen
  };

  bool first_due(SteadyTime now) const;
  bool triggered(SteadyTime now, std::int64_t step) const;
  int parts(SteadyTime now) const;

  std::vector<Trigger> triggers_;
  bool saved_ = false;  // any save began since the start
  bool automatic_ = false;
  double hazard_ = hazard_of({});
  SteadyTime start_;
  std::optional<SteadyTime> hurry_until_;
  SteadyTime last_time_;
  std::int64_t last_step_;
};

}}  // namespace holdfast::v0_2
