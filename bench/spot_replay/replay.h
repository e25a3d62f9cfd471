// Replays a way of saving on a list of machine lives. It uses the real planner (planning/deadline_planner.h),
// costs and save policy on a clock that jumps from step to step, and compares with what trainers do without
// them.
//
// When a machine's life ends the next machine starts at once, or earlier, as a standby. A life begins with the
// start-up. Only steps that are durable at its end count; all other time is lost.
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
  Duration hand_over = std::chrono::seconds(2);     // from the holder's end to a ready standby's first step
  Duration hears = std::chrono::seconds(60);        // from a machine's begin until it hears notices
  Duration silence = std::chrono::seconds(60);      // until a lost machine's run is given to its standby
  double recommended = 0.6;                         // share of lives with a rebalance recommendation
  Duration lead = std::chrono::minutes(20);         // how long before the end that comes
  std::optional<Duration> every;                    // nullopt: the interval is chosen automatically
  std::uint64_t seed = 1;
};

struct Replayed {
  std::string what;
  // Machines that ended while the run was theirs to train, or while nobody trained it.
  std::int64_t preemptions = 0;
  std::int64_t noticed = 0;  // preemptions with a notice
  Duration up{};             // with one machine at least
  Duration twice{};          // with two: paid twice
  Duration kept{};
  Duration startup{};  // part of the lost time
  std::int64_t saves = 0;
  // Lives with a notice in which a commit that began after the notice was not durable at the end.
  std::int64_t unfinished = 0;
  // Largest number of steps since the newest durable one at the end of a life with a notice.
  std::int64_t most_steps_lost = 0;

  double lost_minutes() const;   // per preemption
  double twice_minutes() const;  // machine-minutes per preemption
  double goodput() const;        // 0 … 1
};

Replayed replay_holdfast(const std::vector<Duration>& lives, const ReplayOptions& options);
// When the next machine boots to stand by: at the notice; at a rebalance recommendation, else at the notice;
// or as soon as the one before it trains.
enum class StandBy { on_notice, on_rebalance, always };

// The same, and the run changes hands as `plan_for_hand_over` says. A standby that ends is replaced at its
// end. Without a standby the next machine boots at the end.
Replayed replay_standby(const std::vector<Duration>& lives, const ReplayOptions& options, StandBy when);
// Saves at the end of every `epoch` of training, which waits. Repeats the epoch after a preemption. `sleeps`:
// stops training at the notice and does not save.
Replayed replay_epochs(const std::vector<Duration>& lives, const ReplayOptions& options, Duration epoch,
                       bool sleeps, const std::string& what);

}  // namespace holdfast::bench
