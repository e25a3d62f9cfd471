// When to save: after so much time or so many steps, whichever comes first, or at intervals chosen from what
// saves cost and how long machines live (interval_planner.h). Times count from the last save's start, so a
// slow disk cannot make saves queue.
//
// Threads: one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/checkpoint/interval_planner.h"

namespace holdfast::inline v1 {

// One trigger. `.every = 5min`, `.every = SaveEvery::steps(500)`, `.every = SaveEvery::automatic()`, or a
// list.
struct SaveEvery {
  std::optional<Duration> time;
  std::optional<std::int64_t> step_count;
  std::optional<IntervalLimits> chosen;

  SaveEvery() = default;
  template <class Rep, class Period>
  SaveEvery(std::chrono::duration<Rep, Period> t)
      : time(std::chrono::duration_cast<Duration>(t)) {}  // NOLINT
  static SaveEvery steps(std::int64_t count);
  // Saves early, to learn what one costs, then as often as pays.
  static SaveEvery automatic(IntervalLimits limits = {});
};

// "5min", "500steps", "auto", as an option says it; nullopt for anything else.
std::optional<SaveEvery> parse_save_every(std::string_view text);

class SavePolicy {
 public:
  // UsageError for an interval that is not positive, and limits that contradict each other.
  SavePolicy(const std::vector<SaveEvery>& triggers, SteadyTime start, std::int64_t step);

  bool due(SteadyTime now, std::int64_t step) const;
  void saved(SteadyTime now, std::int64_t step);

  // Whether what follows changes anything.
  bool automatic() const { return automatic_; }
  // What the lives before this one teach, and how old the machine was at the start of this policy.
  void learn(const std::vector<MachineLife>& lives, Duration age);
  // What a save costs, by all that was measured so far. The next interval goes by it.
  void measured(const SaveCost& cost, SteadyTime now);
  // The interval that is chosen now; nullopt without an automatic trigger.
  std::optional<Duration> chosen_interval() const;

  // The machine is at risk: until then every interval, of steps too, is half as long.
  void hurry_until(SteadyTime until);

 private:
  struct Trigger {
    SaveEvery every;
    std::optional<Duration> time;  // given, or chosen
  };

  std::vector<Trigger> triggers_;
  bool automatic_ = false;
  LifeModel lives_;
  Duration age_{};
  SteadyTime start_;
  std::optional<SteadyTime> hurry_until_;
  SteadyTime last_time_;
  std::int64_t last_step_;
};

}  // namespace holdfast::inline v1
