// What saves cost and what they cover: figures of one save, and of an attempt since resume().
//
// Work at risk is what a machine that vanishes now would destroy: the steps since the newest durable one, and
// the time since training stood at that step (not since its file was acknowledged). It is zero while the
// newest step boundary itself is durable.
//
// Units: Duration is nanoseconds on the run's clock. Threads: plain values, free functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "holdfast/base/clock.h"
#include "holdfast/base/export.h"
#include "holdfast/store/run_state.h"

namespace holdfast { inline namespace v0_2 {

// One save. A field is zero until its phase has happened.
struct SaveFigures {
  std::uint64_t bytes = 0;  // size of the file
  // Bytes of state that this process copied: all of it, unless this rank writes a share of a checkpoint.
  std::uint64_t staged = 0;
  Duration blocked{};  // training waited for this save: for copies, and for a free image to copy into
  Duration staging{};  // from the step boundary to the last byte copied, including a late copy
  Duration queued{};   // from the end of staging to the first write
  Duration write{};    // writing and hashing
  Duration commit{};   // everything else: reserve, fsync, read-back, rename, fsync of the directory
  // The work at risk right before this save was acknowledged.
  std::int64_t risk_steps = 0;
  Duration risk_time{};
};

// What training steps lost because a copy or a write ran at the same time. A *window* is a run of such steps,
// including steps that only began or ended during a write. Each window's time, minus the training thread's
// waits, is compared with the mean of the steps (at least five) right before it. `lost` is the sum of the
// differences. The true value lies within `uncertainty` in 19 of 20 cases: twice the standard error, from the
// spread between windows. Evaluations inside an EvaluationScope and the first five steps after resume() are
// left out.
struct StepsBeside {
  std::int64_t windows = 0;
  Duration lost{};  // below zero if those steps happened to be faster
  Duration uncertainty{};
};

// What a mirror has brought to a second, safer place (docs/two_tiers.md). Work at risk is what is not home:
// what would be lost together with this machine and its disk.
struct HomeFigures {
  std::int64_t step = -1;  // newest checkpoint there; -1: none
  std::int64_t risk_steps = 0;
  Duration risk_time{};  // counts from the start of this attempt at the earliest
  Duration took{};       // from durable here to home: the slowest of the last copies; zero: not measured
  bool failing = false;  // the mirror's last try failed; it tries again
};

// Figures of an attempt so far.
struct HOLDFAST_EXPORT RunFigures {
  std::int64_t durable = 0;    // saves
  std::int64_t overtaken = 0;  // replaced by a newer save before they were written
  std::int64_t failed = 0;
  std::int64_t failed_for_space = 0;  // of these: the volume or a quota was full
  std::uint64_t bytes = 0;            // of the durable saves
  Duration elapsed{};                 // since resume() returned, until now or until finish() returned
  // Total time that the training thread waited: in after_step, before_update, save, metric and at both ends
  // of an EvaluationScope. finish() is not included.
  Duration blocked{};
  Duration ending{};  // finish(): its last save, and the wait for it
  // nullopt if there are fewer than three windows, or a write beside every step.
  std::optional<StepsBeside> beside;
  // Work at risk now, and its maximum so far.
  std::int64_t risk_steps = 0;
  Duration risk_time{};
  std::int64_t most_risk_steps = 0;
  Duration most_risk_time{};
  // The newest durable save; step -1: none yet.
  std::int64_t last_step = -1;
  SaveFigures last;
  // nullopt: no mirror has told anything about this run directory.
  std::optional<HomeFigures> home;

  // Training time lost: the waits, plus what steps beside a copy or a write took longer.
  std::optional<Duration> lost() const;
};

// For people: "188 MB in 0.21 s (0.90 GB/s), training waited 21 ms, 61s of work (120 steps) was at risk".
HOLDFAST_EXPORT std::string to_text(const SaveFigures& figures);
// For people: "12 saves, 2.26 GB; training waited 0.41 s in all (0.012 %), …".
HOLDFAST_EXPORT std::string to_text(const RunFigures& figures);
// Members of a JSON object without its braces, times in milliseconds: "bytes":188…,"blocked_ms":21.4,…
HOLDFAST_EXPORT std::string to_json_members(const SaveFigures& figures);

// Copies the figures into a run state.
HOLDFAST_EXPORT void put_figures(RunState& state, const RunFigures& figures);

}}  // namespace holdfast::v0_2
