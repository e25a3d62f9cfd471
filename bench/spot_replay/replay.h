// What a way of saving makes of a list of machine lives: the real planner (checkpoint/deadline_planner.h),
// costs and save policy on a clock that jumps from step to step, and what trainers do without them.
//
// A machine lives so long and then is gone; the next one begins at once. A life begins with the start-up.
// Steps that were durable at its end count, all other time is lost.
//
// Threads: pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/base/clock.h"

namespace holdfast::bench {

struct ReplayOptions {
  Duration step = std::chrono::seconds(1);
  Duration startup = std::chrono::minutes(3);
  Duration commit = std::chrono::seconds(20);       // a save, from its step to the acknowledgement
  double commit_spread = 0.25;                      // each takes as much more or less, evenly; below 1
  Duration stall = std::chrono::milliseconds(200);  // of it, the training waits
  Duration notice = std::chrono::seconds(120);      // before the end
  Duration poll = std::chrono::seconds(2);          // a notice is seen as much later, evenly
  double missed = 0.05;                             // share of lives that end without one
  std::optional<Duration> every;                    // nullopt: the interval is chosen
  std::uint64_t seed = 1;
};

struct Replayed {
  std::string what;
  std::int64_t preemptions = 0;
  std::int64_t noticed = 0;  // of those
  Duration up{};
  Duration kept{};
  Duration startup{};  // of what is lost
  std::int64_t saves = 0;
  // Noticed lives in which a commit that was begun after the notice was not durable at the end.
  std::int64_t unfinished = 0;
  // The most steps that a noticed life had made since its newest durable one when it ended.
  std::int64_t most_steps_lost = 0;

  double lost_minutes() const;  // a preemption
  double goodput() const;       // 0 … 1
};

Replayed replay_holdfast(const std::vector<Duration>& lives, const ReplayOptions& options);
// Saves at the end of every `epoch` of training, which waits for it. Begins the epoch again after a
// preemption. With `sleeps`, it stops training at the notice and does not save.
Replayed replay_epochs(const std::vector<Duration>& lives, const ReplayOptions& options, Duration epoch,
                       bool sleeps, const std::string& what);

}  // namespace holdfast::bench
