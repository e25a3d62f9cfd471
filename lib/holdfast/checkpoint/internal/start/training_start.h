// From the found start to the first step: claims and loads (start_run), then opens ledger, run state and
// writer.
//
// Errors: as start_run(); a failure after the claim is recorded in the ledger and the run state.
// Threads: the training thread; the writer's thread samples values for the ledger, the heartbeat's thread
// for the progress file.
#pragma once

#include <atomic>
#include <string>

#include "holdfast/checkpoint/internal/heartbeat.h"
#include "holdfast/checkpoint/internal/home_watch.h"
#include "holdfast/checkpoint/internal/run.h"
#include "holdfast/checkpoint/internal/run_driver.h"
#include "holdfast/checkpoint/internal/run_end.h"
#include "holdfast/checkpoint/internal/saves.h"
#include "holdfast/checkpoint/internal/start/run_start.h"
#include "holdfast/checkpoint/internal/start/standby_watch.h"
#include "holdfast/checkpoint/internal/start/start_finder.h"
#include "holdfast/checkpoint/internal/step_boundary.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class TrainingStart {
 public:
  TrainingStart(Run& run, RunDriver& driver, StepBoundary& boundary, Saves& saves, Heartbeat& heartbeat,
                HomeWatch& home, RunEnd& end)
      : run_(run),
        driver_(driver),
        boundary_(boundary),
        saves_(saves),
        heartbeat_(heartbeat),
        home_(home),
        end_(end),
        constructed_(run.clock.now()),
        wait_(run),
        finder_(run),
        standby_(run, finder_) {}

  StartWait& wait() { return wait_; }
  StartFinder& finder() { return finder_; }
  StandbyWait& standby() { return standby_; }
  // The program's call of peek() or resume(): UsageError if it comes too late.
  void require_open(const char* call) const;
  // For a process that commits: finds, claims, loads, and begins.
  void claim(int world_size, const BeforeClaim& before_claim);
  // From here on a step that stands still is no part of the start.
  void others_have_loaded() { others_load_ = false; }
  // The loop begins with what run.started holds.
  void begin();
  bool begun() const { return begun_; }
  // Ends the threads that begin() has started.
  void stop() noexcept { standby_watch_.stop(); }

 private:
  void begin_writing();
  void learn_lives() noexcept;
  LedgerStart start_figures() const;
  Ledger::Sample sample() const;
  bool tell_progress(RunProgress& now) const;
  void hear_home(const HomeRecord& record) const;

  Run& run_;
  RunDriver& driver_;
  StepBoundary& boundary_;
  Saves& saves_;
  Heartbeat& heartbeat_;
  HomeWatch& home_;
  RunEnd& end_;
  const SteadyTime constructed_;
  StartWait wait_;
  StartFinder finder_;
  StandbyWait standby_;
  StandbyWatch standby_watch_;
  bool begun_ = false;
  std::atomic<bool> others_load_{false};
};

}}}  // namespace holdfast::v0_2::internal
