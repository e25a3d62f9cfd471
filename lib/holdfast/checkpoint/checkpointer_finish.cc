// Phases in which the state stands still, and the end of the run.
#include <exception>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/checkpoint/internal/checkpointer_state.h"
#include "holdfast/checkpoint/internal/ranked_state.h"

namespace holdfast::inline v1 {
namespace {

constexpr Duration kSlice = std::chrono::milliseconds(50);
constexpr Duration kSayEvery = std::chrono::seconds(30);

}  // namespace

bool Checkpointer::State::tick() {
  if (!monitor.pending() && !leaving && !(writer && writer->superseded())) return false;
  watch->heard();
  if (crew) return leaving;  // a stop is agreed, or is none
  const bool stop = should_stop();
  if (stop) leave();
  if (evaluating) {
    stopped_inside = stopped_inside || stop;
    take_requests();
    if ((stop || save_wanted || monitor.deadline()) && commit_from_shelf()) save_wanted = false;
  }
  return stop;
}

// All of it is copied now: whatever an evaluation does to the state (statistics, random numbers, averaged
// weights swapped in), a stop inside commits this boundary.
void Checkpointer::State::enter_evaluation() {
  require(Phase::running, "EvaluationScope");
  if (evaluating) throw UsageError("an EvaluationScope inside another one");
  const Waiting waiting(*this);
  step_times.leave_out();
  step_is_no_measure = true;
  late_stager.complete();
  evaluating = true;
  stopped_inside = false;
  cut_short = false;
  if (crew) return;
  try {
    boundary = stage(Part::all);
    put_on_shelf();
  } catch (...) {
    boundary = {};
    staging_failed(nullptr);
  }
}

void Checkpointer::State::leave_evaluation() {
  evaluating = false;
  clear_shelf();
  const bool save_it = std::exchange(best_wanted, false);
  // Cut short: the boundary on entry is what the next attempt begins with, and it evaluates again.
  if (stopped_inside || cut_short) {
    evaluation_due = true;
    disturbed = !crew && !boundary;
    return;
  }
  boundary = {};
  evaluation_due = false;
  if (save_it && loop_runs() && !should_stop()) save();
}

// What memory holds now is no step boundary.
void Checkpointer::State::check_undisturbed() const {
  if ((evaluating || disturbed) && !boundary) {
    throw Error(
        "an evaluation began although the state could not be copied, and it was not brought to its end");
  }
}

int Checkpointer::State::finish() {
  if (phase == Phase::finished) return end_code;
  require(Phase::running, "finish");
  if (!crew) return finish_alone();
  or_abandon([&] {
    part_together();
    if (crew->leads()) {
      finish_alone();
      tell_outcome();
    } else {
      Decision last;
      if (crew->round.plan != 0) hand_share(last, true);
      end_round(last);
      hear_outcome();
    }
  });
  return end_code;
}

int Checkpointer::State::finish_alone() {
  const SteadyTime began = clock.now();
  watch->end();
  drop_late();
  clear_shelf();
  const bool interrupted = should_stop();
  end_reason = reason_to_stop();
  unhurried = !interrupted;
  if (interrupted) press();
  if (interrupted) writer->leave_soon();

  bool in_time = commit_last_step();
  if (crew) end_round({});
  // A save that failed on the way is tried once more, in a new file.
  if (in_time && !covered() && !writer->superseded()) {
    if (crew) crew->patience.end_by(crew->end.value_or(SteadyTime::max()));
    in_time = commit_last_step();
  }
  receipt.close();

  gave_up = !in_time;
  if (in_time) writer->stop();
  phase = Phase::finished;
  book->finished(clock.now() - began);
  book->close();
  say_figures();

  RunPhase how = interrupted ? RunPhase::interrupted : RunPhase::complete;
  end_code = interrupted ? options.exit_code_interrupted : static_cast<int>(ExitCode::complete);
  if (writer->superseded()) {
    end_reason = writer->superseded_reason();
    return end_code = static_cast<int>(ExitCode::superseded);
  }
  if (!safe() && in_time && left_out && !writer->failing()) {
    how = RunPhase::interrupted;
    end_code = options.exit_code_interrupted;
    end_reason = reason_of_leaving_out();
  } else if (!safe()) {
    how = RunPhase::failed;
    end_code = static_cast<int>(ExitCode::io_failed);
    const std::optional<std::string> told = writer->failure();
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

// Nothing failed: what is durable stands, and the next attempt goes on there.
std::string Checkpointer::State::reason_of_leaving_out() const noexcept {
  return text_or_out_of_memory([&] {
    const std::int64_t durable = newest_durable();
    std::string text = end_reason.empty() ? reason_to_stop() : end_reason;
    text += "; no time was left to save step " + std::to_string(source.step()) + ", ";
    return text + (durable >= 0 ? "step " + std::to_string(durable) + " is the newest that is durable"
                                : "nothing of this run is durable");
  });
}

void Checkpointer::State::say_figures() const noexcept {
  const RunFigures figures = book->figures();
  if (figures.durable == 0) return;
  const std::string text = text_or_out_of_memory([&] { return to_text(figures); });
  log_info(text);
}

bool Checkpointer::State::commit_last_step() {
  if (covered() || writer->superseded()) return wait_for_writer();
  left_out = ((!unhurried || must_stop()) && !commit_fits()) || (crew && crew->hopeless);
  if (left_out) {
    say_too_late({.move = Move::stop, .too_late = true});
    return wait_for_writer();
  }
  const SteadyTime began = clock.now();
  BegunSave save;
  try {
    last = {};
    if (!boundary) {
      check_undisturbed();
      if (!wait_for_image()) return false;
    }
    save = begin_save(true);
    if (!boundary) last = stage(Part::all);
    submit(boundary ? boundary : last, save, clock.now() - began);
  } catch (...) {
    staging_failed(std::move(save));
  }
  return wait_for_writer();
}

bool Checkpointer::State::wait_for_writer() {
  const SteadyTime began = clock.now();
  SteadyTime said = began;
  while (!writer->wait_idle(kSlice)) {
    watch->heard();
    if (monitor.stop_requested() || monitor.deadline()) press();
    if (out_of_time(began)) return false;
    if (clock.now() - said >= kSayEvery) {
      said = clock.now();
      log_info("still writing the last checkpoint ({:.0f} s so far)",
               std::chrono::duration<double>(said - began).count());
    }
  }
  return true;
}

Digest Checkpointer::State::digest_now() {
  if (boundary) return holdfast::state_digest(*boundary.snapshot);
  if (last && !last.shares && last.snapshot->step == source.step()) {
    return holdfast::state_digest(*last.snapshot);
  }
  auto whole = stager.stage(record).snapshot;
  return holdfast::state_digest(crew ? *internal::share_of(crew->rank(), whole) : *whole);
}

}  // namespace holdfast::inline v1
