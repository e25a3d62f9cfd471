// Phases in which the state stands still, and the end of the run.
#include <exception>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/checkpoint/internal/checkpointer_state.h"

namespace holdfast::inline v1 {
namespace {

constexpr Duration kSlice = std::chrono::milliseconds(50);
constexpr Duration kSayEvery = std::chrono::seconds(30);

}  // namespace

bool Checkpointer::State::tick() {
  if (!monitor.pending() && !(writer && writer->superseded())) return false;
  const bool stop = should_stop();
  if (evaluating) {
    stopped_inside = stopped_inside || stop;
    if ((monitor.take_checkpoint_request() || stop) && boundary) save();
  }
  return stop;
}

// What an evaluation may disturb (buffers, RNG, flags) is copied now; parameters and optimizer slots stand
// still and are copied only if this boundary has to be committed.
void Checkpointer::State::enter_evaluation() {
  require(Phase::running, "EvaluationScope");
  if (evaluating) throw UsageError("an EvaluationScope inside another one");
  late_stager.complete();  // an evaluation may swap averaged weights in
  evaluating = true;
  stopped_inside = false;
  boundary_whole = false;
  try {
    boundary = stage(Part::early);
  } catch (const std::exception& error) {
    boundary = {};
    staging_failed(error);
  }
}

void Checkpointer::State::leave_evaluation() {
  evaluating = false;
  const bool save_it = std::exchange(best_wanted, false);
  // Cut short: the boundary on entry is what the next attempt begins with, and it evaluates again.
  if (stopped_inside) return;
  boundary = {};
  evaluation_due = false;
  if (save_it && phase == Phase::running && !should_stop()) save();
}

void Checkpointer::State::complete_boundary() {
  if (!boundary || std::exchange(boundary_whole, true)) return;
  stager.add_late(boundary);
}

int Checkpointer::State::finish() {
  if (phase == Phase::finished) return end_code;
  require(Phase::running, "finish");
  drop_late();
  end_reason = reason_to_stop();
  const bool interrupted = should_stop();
  if (interrupted) writer->leave_soon();

  bool in_time = commit_last_step();
  // A save that failed on the way is tried once more, in a new file.
  if (in_time && !covered() && !writer->superseded()) in_time = commit_last_step();
  receipt.close();

  gave_up = !in_time;
  if (in_time) writer->stop();
  phase = Phase::finished;

  RunPhase how = interrupted ? RunPhase::interrupted : RunPhase::complete;
  end_code = interrupted ? options.exit_code_interrupted : static_cast<int>(ExitCode::complete);
  if (writer->superseded()) {
    end_reason = writer->superseded_reason();
    return end_code = static_cast<int>(ExitCode::superseded);
  }
  if (!safe()) {
    how = RunPhase::failed;
    end_code = static_cast<int>(ExitCode::io_failed);
    const auto told = writer->failure();
    std::string failure =
        told ? *told : text_or_out_of_memory([] { return std::string("the last save did not end in time"); });
    log_error("{}; what was acknowledged before stands", failure);
    if (end_reason.empty()) end_reason = std::move(failure);
  }
  // A writer that hangs in the disk still owns the store.
  if (in_time && !note_end(how, end_reason.c_str(), end_code))
    end_code = static_cast<int>(ExitCode::superseded);
  return end_code;
}

bool Checkpointer::State::commit_last_step() {
  if (covered() || writer->superseded()) return wait_for_writer();
  try {
    last = {};
    if (!boundary) {
      if (!wait_for_image()) return false;
      last = stage(Part::all);
    } else {
      complete_boundary();
    }
    submit(boundary ? boundary : last);
  } catch (const std::exception& error) {
    staging_failed(error);
  }
  return wait_for_writer();
}

bool Checkpointer::State::wait_for_writer() {
  const SteadyTime began = clock.now();
  SteadyTime said = began;
  while (!writer->wait_idle(kSlice)) {
    if (const auto left = monitor.time_left(); left && *left == Duration::zero()) return false;
    if (clock.now() - said >= kSayEvery) {
      said = clock.now();
      log_info("still writing the last checkpoint ({:.0f} s so far)",
               std::chrono::duration<double>(said - began).count());
    }
  }
  return true;
}

Digest Checkpointer::State::digest_now() {
  if (boundary) {
    complete_boundary();
    return holdfast::state_digest(*boundary.snapshot);
  }
  if (last && last.snapshot->step == source.step()) return holdfast::state_digest(*last.snapshot);
  return holdfast::state_digest(*stager.stage(record).snapshot);
}

}  // namespace holdfast::inline v1
