// What saves cost and what they cover, in numbers: of one save, and of an attempt from resume() on.
//
// Work at risk is what a machine that vanishes now takes with it: the steps since the newest durable one, and
// the time since the training stood at that step (not since its file was acknowledged). It is none while the
// newest step boundary itself is durable.
//
// Units: Duration is nanoseconds on the run's clock. Threads: plain values, free functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "holdfast/base/clock.h"
#include "holdfast/store/run_state.h"

namespace holdfast::inline v1 {

// One save. What has not happened yet is zero.
struct SaveFigures {
  std::uint64_t bytes = 0;  // of the file
  // Of the state, that this process copied: all of it, but for a rank that writes its share of a checkpoint.
  std::uint64_t staged = 0;
  Duration blocked{};  // the training thread waited for this save: copies, and an image to copy into
  Duration staging{};  // from the step boundary to the last byte copied, a late copy included
  Duration queued{};   // staged, until its write began
  Duration write{};    // writing and hashing
  Duration commit{};   // the rest: reserve, fsync, read back, rename, fsync of the directory
  // The work at risk right before this save was acknowledged.
  std::int64_t risk_steps = 0;
  Duration risk_time{};

  // The speed at which it became durable: bytes over write and commit. 0 before.
  double bytes_per_second() const;
};

// What training steps lost because a copy or a write ran beside them. A *window* is a run of such steps; a
// step that only began or ended during a write belongs to it. Each window is compared with the steps without
// one right before it, at least five: its own time, without what the training thread waited, less as many of
// their mean. `lost` is the sum over the windows; the true value lies within `uncertainty` of it in 19 of 20
// cases (twice the standard error, from the spread between windows). Evaluations inside an EvaluationScope,
// and the first five steps after resume(), are left out.
struct StepsBeside {
  std::int64_t windows = 0;
  Duration lost{};  // below zero when those steps happened to be the quicker ones
  Duration uncertainty{};
};

// An attempt so far.
struct RunFigures {
  std::int64_t durable = 0;  // saves
  std::int64_t overtaken = 0;
  std::int64_t failed = 0;
  std::uint64_t bytes = 0;  // of the durable ones
  Duration elapsed{};       // since resume() returned, until now or until finish() returned
  // What the training thread waited in all, measured: in after_step, before_update, save, metric and at both
  // ends of an EvaluationScope. Not finish().
  Duration blocked{};
  Duration ending{};  // finish(): its last save, and the wait for it
  // nullopt while there is too little to tell: fewer than three windows, or a write beside every step.
  std::optional<StepsBeside> beside;
  // Work at risk now, and the most that ever was.
  std::int64_t risk_steps = 0;
  Duration risk_time{};
  std::int64_t most_risk_steps = 0;
  Duration most_risk_time{};
  // The newest durable save; step -1: none yet.
  std::int64_t last_step = -1;
  SaveFigures last;

  // The training time really lost: what was waited, and what steps beside a copy or a write took longer.
  std::optional<Duration> lost() const;
};

// "188 MB in 0.21 s (0.90 GB/s), training waited 21 ms, 61s of work (120 steps) was at risk": for people.
std::string to_text(const SaveFigures& figures);
// "12 saves, 2.26 GB; training waited 0.41 s in all (0.012 %), …; at most 61s of work was at risk": likewise.
std::string to_text(const RunFigures& figures);
// Members of a JSON object, without its braces: "bytes":188…,"blocked_ms":21.4,… in milliseconds.
std::string to_json_members(const SaveFigures& figures);

// What a run state says of them.
void put_figures(RunState& state, const RunFigures& figures);

}  // namespace holdfast::inline v1
