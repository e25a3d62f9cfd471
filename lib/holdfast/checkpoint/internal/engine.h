// The parts of a Checkpointer that start, save and end a run. The Ensemble decides when they act. Members are
// in the order in which they need each other.
//
// Errors: the constructor throws UsageError for triggers that cannot be. Threads: as each part says.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "holdfast/checkpoint/internal/boundary_saves.h"
#include "holdfast/checkpoint/internal/evaluation.h"
#include "holdfast/checkpoint/internal/heartbeat.h"
#include "holdfast/checkpoint/internal/held_boundary.h"
#include "holdfast/checkpoint/internal/home_watch.h"
#include "holdfast/checkpoint/internal/late_save.h"
#include "holdfast/checkpoint/internal/notice_listener.h"
#include "holdfast/checkpoint/internal/quiet_steps.h"
#include "holdfast/checkpoint/internal/run.h"
#include "holdfast/checkpoint/internal/run_end.h"
#include "holdfast/checkpoint/internal/save_flow.h"
#include "holdfast/checkpoint/internal/save_partners.h"
#include "holdfast/checkpoint/internal/save_schedule.h"
#include "holdfast/checkpoint/internal/step_boundary.h"
#include "holdfast/checkpoint/internal/training_start.h"
#include "holdfast/checkpoint/internal/unsaved_limit.h"
#include "holdfast/checkpoint/internal/write_limit.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

struct Engine {
  // Both references outlive this object.
  Engine(Run& the_run, SavePartners& the_partners) : run(the_run), partners(the_partners) {}
  // Ends the other threads before the objects that they use: what writes the ledger also reads the
  // evaluation.
  ~Engine() {
    listener.stop();
    home.stop();
    start.stop();
    run.book->no_more_news();
    heartbeat.stop(Heartbeat::kPatience);
    late.end();
    if (run.writer) run.writer->stop();
    end.wait_for_thread();
  }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // The planner's decision at the current boundary.
  Plan plan() noexcept { return run.outlook.decide(saves.reached()); }
  // All is decided at this boundary. If nothing is open, the steps before these need no decision.
  void rest_until(std::optional<std::int64_t> next_step, std::optional<SteadyTime> next_time) {
    const bool open = late.open() || evaluation.meets_step() || limit.lifted() || schedule.wanted() ||
                      run.outlook.leaving() || !boundary_saves.layout_tried();
    if (open) return;
    const std::int64_t last = heartbeat.last_step();
    if (last > run.step()) next_step = std::min(next_step.value_or(last), last);
    quiet.until(run.step(), next_step, next_time, run.writer.get());
  }
  // The program has said that the loop ends with this step, or `end` says it.
  bool is_last_step(DataEnd end) const { return end == DataEnd::run || run.step() == heartbeat.last_step(); }
  void tell_stop(Decision& decision) noexcept {
    run.outlook.leave();
    decision.stop = true;
    decision.reason = run.outlook.reason();
  }

  Run& run;
  SavePartners& partners;
  NoticeListener listener{
      run,
      partners,
      {.runs = [this] { return evaluation.running(); }, .commit = [this] { evaluation.commit(); }}};
  // A cache line each, because every step uses them.
  alignas(64) QuietSteps quiet{run};
  alignas(64) StepBoundary boundary{run, partners};
  SaveSchedule schedule{run};
  UnsavedLimit unsaved{run, schedule};
  WriteLimit limit{run, partners};
  SaveFlow saves{run, partners, boundary, listener, limit};
  LateSave late{run, saves, schedule};
  HeldBoundary held{run, boundary, saves, late};
  Evaluation evaluation{run, partners, boundary, schedule, saves, late, held};
  BoundarySaves boundary_saves{run, partners, boundary, schedule, limit, saves, late, evaluation};
  Heartbeat heartbeat;
  HomeWatch home;
  RunEnd end{run, partners, listener, unsaved, limit, saves, late, evaluation, boundary_saves, heartbeat};
  TrainingStart start{run, listener, boundary, schedule, saves, evaluation, heartbeat, home, end};
};

}}}  // namespace holdfast::v0_2::internal
