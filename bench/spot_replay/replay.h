// Replays a way of saving on a list of machine lives. It uses the real planner (planning/deadline_planner.h),
// costs and save policy on a clock that jumps from step to step, and compares with what trainers do without
// them.
//
// When a machine's life ends the next machine starts at once. A life begins with the start-up. Only steps
// that are durable at its end count; all other time is lost.
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
  Duration commit = std::chrono::seconds(20);       // duration of a save, from its step to the
                                                    // acknowledgement
  double commit_spread = 0.25;                      // each save takes up to this share more or less, uniform;
                                                    // below 1
  Duration stall = std::chrono::milliseconds(200);  // part of it that the training waits
  Duration notice = std::chrono::seconds(120);      // time from the notice to the end
  Duration poll = std::chrono::seconds(2);          // largest delay until the notice is seen, uniform
  double missed = 0.05;                             // share of lives that end without a notice
  std::optional<Duration> every;                    // nullopt: the interval is chosen automatically
  std::uint64_t seed = 1;
};

struct Replayed {
  std::string what;
  std::int64_t preemptions = 0;
  std::int64_t noticed = 0;  // preemptions with a notice
  Duration up{};
  Duration kept{};
  Duration startup{};  // part of the lost time
  std::int64_t saves = 0;
  // Lives with a notice in which a commit that began after the notice was not durable at the end.
  std::int64_t unfinished = 0;
  // Largest number of steps since the newest durable one at the end of a life with a notice.
  std::int64_t most_steps_lost = 0;

  double lost_minutes() const;  // per preemption
  double goodput() const;       // 0 … 1
};

Replayed replay_holdfast(const std::vector<Duration>& lives, const ReplayOptions& options);
// Saves at the end of every `epoch` of training, which waits. Repeats the epoch after a preemption. `sleeps`:
// stops training at the notice and does not save.
Replayed replay_epochs(const std::vector<Duration>& lives, const ReplayOptions& options, Duration epoch,
                       bool sleeps, const std::string& what);

}  // namespace holdfast::bench
