// Phases in which the state stands still, and the end of the run.
#include <algorithm>
#include <exception>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/checkpoint/internal/checkpointer_state.h"
#include "holdfast/ranks/ranked_state.h"

namespace holdfast { inline namespace v1 {
namespace {

constexpr Duration kSlice = std::chrono::milliseconds(50);
constexpr Duration kSayEvery = std::chrono::seconds(30);
// For an image that an older step is written from, or two commits where those take longer.
constexpr Duration kLongestWaitForImage = std::chrono::seconds(30);
constexpr char kNoStep[] =
    "the run ended without a single step: after_step() was never called, and nothing was resumed";

std::string what_stands(std::int64_t durable) {
  return durable >= 0 ? "step " + std::to_string(durable) + " is the newest that is durable"
                      : "nothing of this run is durable";
}

}  // namespace

bool Checkpointer::State::tick() {
  if (!monitor.pending() && !outlook.leaving() && !(writer && writer->superseded())) return false;
  watch->heard();
  if (ranks) return outlook.leaving();  // a stop is agreed, or is none
  const bool stop = outlook.should_stop();
  if (stop) outlook.leave();
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
  const Waiting waiting(time);
  time.leave_step_out();
  late_stager.complete();
  evaluating = true;
  stopped_inside = false;
  cut_short = false;
  if (ranks) return enter_together();
  try {
    boundary = image_of_boundary();
    put_on_shelf();
  } catch (...) {
    boundary = {};
    staging_failed(nullptr);
  }
}

// A save of this very step that is under way has it in its image already.
internal::Staged Checkpointer::State::image_of_boundary() {
  if (const std::string torn = why_torn(); !torn.empty()) throw Error(torn);
  internal::Staged image = image_in_use();
  if (!image && late_stager.open()) {
    late_stager.arrive();
    if (!late_is_whole && !late_stager.copy().changed_samples().empty()) {
      close_late();  // says what has changed, and drops it
    } else {
      image = late;
    }
  }
  if (image) {
    auto boundary_of_it = std::make_shared<Snapshot>(*image.snapshot);
    note_record();
    put_run_record(boundary_of_it->attributes, started.record);
    if (attribute_capacity_for(boundary_of_it->attributes) <= image.plan->attribute_capacity) {
      image.snapshot = std::move(boundary_of_it);
      return image;
    }
    drop_late();
    image = {};
  }
  const Duration longest =
      std::max<Duration>(kLongestWaitForImage, 2 * costs.costs().commit.value_or(Duration::zero()));
  if (!wait_for_image(longest)) {
    throw Error("the only image is still being written; a stop inside this evaluation commits nothing newer");
  }
  return stage(Part::all);
}

internal::Staged Checkpointer::State::image_in_use() const {
  auto snapshot = snapshot_in_flight.lock();
  if (!snapshot || snapshot->step != source.step() || in_flight.shares) return {};
  internal::Staged image = in_flight;
  image.snapshot = std::move(snapshot);
  return image;
}

void Checkpointer::State::leave_evaluation(bool thrown_out) {
  evaluating = false;
  clear_shelf();
  if (ranks) boundary = {};  // what is saved after this, all save
  const bool save_it = std::exchange(best_wanted, false);
  // Cut short: the boundary on entry is what the next attempt begins with, and it evaluates again.
  if (stopped_inside || cut_short || thrown_out) {
    evaluation_due = true;
    disturbed = !boundary && (!ranks || thrown_out);
    return;
  }
  boundary = {};
  evaluation_due = false;
  if (save_it && loop_runs() && !outlook.should_stop()) save();
}

std::string Checkpointer::State::why_torn() const {
  if (update_open && !boundary) {
    return "the update of step " + std::to_string(source.step() + 1) +
           " has begun (before_update()) and no after_step() has ended it: memory holds no step";
  }
  if (!ranks || ranks->torn < 0) return {};
  return "rank " + std::to_string(ranks->torn) +
         " is inside an update (before_update() without after_step()), or in an evaluation that did not come "
         "to its end: not all ranks hold the same step";
}

void Checkpointer::State::check_undisturbed() const {
  if (const std::string torn = why_torn(); !torn.empty()) throw Error(torn);
  if ((evaluating || disturbed) && !boundary) {
    throw Error(
        "an evaluation began although the state could not be copied, and it was not brought to its end");
  }
}

int Checkpointer::State::finish() {
  if (phase == Phase::finished) return end_code;
  require(Phase::running, "finish");
  if (!ranks) return finish_alone();
  or_abandon([&] {
    part_together();
    if (ranks->leads()) {
      finish_alone();
      tell_outcome();
    } else {
      Decision last;
      if (ranks->round.plan != 0) hand_share(last, true);
      end_round(last);
      hear_outcome();
    }
  });
  return end_code;
}

int Checkpointer::State::finish_alone() {
  const SteadyTime began = clock.now();
  watch->end();
  clear_shelf();
  const bool interrupted = outlook.should_stop();
  end_reason = outlook.reason();
  outlook.take_time(!interrupted);
  if (interrupted) lift_limit();
  interrupted && !commit_fits() ? drop_late() : settle_late();
  if (interrupted) writer->leave_soon();

  const std::string torn = why_torn();
  bool in_time = torn.empty() ? commit_last_step() : wait_for_writer();
  if (ranks) end_round({});
  // A save that failed on the way is tried once more, in a new file.
  if (in_time && torn.empty() && !covered() && !writer->superseded()) {
    if (ranks) ranks->patience.end_by(ranks->end.value_or(SteadyTime::max()));
    in_time = commit_last_step();
  }
  started.receipt.close();

  gave_up = !in_time;
  if (in_time) writer->stop();
  phase = Phase::finished;
  book->finished(clock.now() - began);
  book->close();
  say_figures();

  if (writer->superseded()) {
    end_reason = writer->superseded_reason();
    return end_code = static_cast<int>(ExitCode::superseded);
  }
  const RunPhase how = judge(interrupted, in_time, torn);
  // A writer that hangs in the disk still owns the store.
  if (in_time && !note_end(how, end_reason.c_str(), end_code))
    end_code = static_cast<int>(ExitCode::superseded);
  return end_code;
}

// Sets the code and the reason. Told to stop, a run with something durable is interrupted, whatever became of
// its last save: the next attempt goes on there.
RunPhase Checkpointer::State::judge(bool interrupted, bool in_time, const std::string& torn) {
  const bool told = interrupted || outlook.must_stop();
  const std::int64_t durable = newest_durable();
  const std::string stands = text_or_out_of_memory([&] { return what_stands(durable); });
  const auto ends_as = [this](RunPhase how, int code) {
    end_code = code;
    return how;
  };
  const auto fails = [&](ExitCode code) { return ends_as(RunPhase::failed, static_cast<int>(code)); };
  const auto is_interrupted = [&] {
    return ends_as(RunPhase::interrupted, options.notices.exit_code_interrupted);
  };

  if (!torn.empty()) {
    log_error("{}; nothing newer is committed, {}", torn, stands);
    add_to_reason(torn);
    return told ? is_interrupted() : fails(ExitCode::internal);
  }
  if (!told && source.step() == 0) {
    log_error("{}; call it after every optimizer update", kNoStep);
    add_to_reason(kNoStep);
    return fails(ExitCode::internal);
  }
  if (safe()) {
    return interrupted ? is_interrupted() : ends_as(RunPhase::complete, static_cast<int>(ExitCode::complete));
  }
  if (in_time && left_out && !writer->failing()) {
    end_reason = reason_of_leaving_out();
    return is_interrupted();
  }
  const std::optional<std::string> reported = writer->failure();
  const std::string failure =
      reported ? *reported
               : text_or_out_of_memory([] { return std::string("the last save did not end in time"); });
  log_error("{}; what was acknowledged before stands: {}", failure, stands);
  add_to_reason(failure);
  return told && durable >= 0 ? is_interrupted() : fails(ExitCode::io_failed);
}

void Checkpointer::State::add_to_reason(const std::string& text) noexcept {
  end_reason = text_or_out_of_memory([&] { return end_reason.empty() ? text : end_reason + "; " + text; });
}

// Calmly: an exception that ends the program has its own words.
void Checkpointer::State::say_unfinished() const noexcept {
  const std::int64_t durable = writer ? newest_durable() : started.durable.step;
  const std::string text = text_or_out_of_memory([&] {
    return "the Checkpointer goes without finish(): nothing new is committed, and the run counts as broken "
           "off; step " +
           std::to_string(source.step()) + " is reached, " + what_stands(durable);
  });
  std::uncaught_exceptions() > 0 || covered() ? log_info(text) : log_warning(text);
}

// Nothing failed: what is durable stands, and the next attempt goes on there.
std::string Checkpointer::State::reason_of_leaving_out() const noexcept {
  return text_or_out_of_memory([&] {
    const std::int64_t durable = newest_durable();
    std::string text = end_reason.empty() ? outlook.reason() : end_reason;
    text += "; no time was left to save step " + std::to_string(source.step()) + ", ";
    return text + what_stands(durable);
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
  left_out = (outlook.hurried() && !commit_fits()) || (ranks && ranks->hopeless);
  if (left_out) {
    outlook.warn_too_late(reached());
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
    if (monitor.stop_requested() || monitor.deadline()) lift_limit();
    if (outlook.out_of_time(began)) return false;
    if (clock.now() - said >= kSayEvery) {
      said = clock.now();
      log_info("still writing the last checkpoint ({:.0f} s so far)",
               std::chrono::duration<double>(said - began).count());
    }
  }
  return true;
}

Digest Checkpointer::State::digest_now() {
  if (boundary && !ranks) return holdfast::state_digest(*boundary.snapshot);
  if (last && !last.shares && last.snapshot->step == source.step()) {
    return holdfast::state_digest(*last.snapshot);
  }
  auto whole = stager.stage(started.record).snapshot;
  return holdfast::state_digest(ranks ? *internal::share_of(ranks->rank(), whole) : *whole);
}

}}  // namespace holdfast::v1
