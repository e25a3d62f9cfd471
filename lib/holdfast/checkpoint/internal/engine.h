// The parts of a Checkpointer that start, save and end a run. Calls decides when they act. Members are in the
// order in which they need each other.
//
// Errors: the constructor throws UsageError for triggers that cannot be. Threads: as each part says.
#pragma once

#include "holdfast/checkpoint/internal/heartbeat.h"
#include "holdfast/checkpoint/internal/home_watch.h"
#include "holdfast/checkpoint/internal/other_ranks.h"
#include "holdfast/checkpoint/internal/quiet_steps.h"
#include "holdfast/checkpoint/internal/run.h"
#include "holdfast/checkpoint/internal/run_driver.h"
#include "holdfast/checkpoint/internal/run_end.h"
#include "holdfast/checkpoint/internal/saves.h"
#include "holdfast/checkpoint/internal/start/training_start.h"
#include "holdfast/checkpoint/internal/step_boundary.h"
#include "holdfast/checkpoint/internal/unsaved_limit.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

struct Engine {
  // Both outlive this object. `group`: null if this process is alone.
  Engine(Run& the_run, RankGroup* group) : run(the_run), others(the_run, group) {}
  // Ends the other threads before the objects that they use: what writes the ledger also reads the driver.
  ~Engine() {
    driver.listener().stop();
    home.stop();
    start.stop();
    run.book->no_more_news();
    heartbeat.stop(Heartbeat::kPatience);
    saves.end();
    if (run.writer) run.writer->stop();
    others.stop();
    end.wait_for_thread();
  }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  Run& run;
  OtherRanks others;
  // A cache line each, because every step uses them.
  alignas(64) StepBoundary boundary{run, others.leads()};
  Saves saves{run, others, boundary};
  RunDriver driver{run, saves, others};
  alignas(64) QuietSteps quiet{run, driver};
  UnsavedLimit unsaved{run, driver};
  Heartbeat heartbeat;
  HomeWatch home;
  RunEnd end{run, driver, heartbeat};
  TrainingStart start{run, driver, boundary, saves, heartbeat, home, end};
};

}}}  // namespace holdfast::v0_2::internal
