// The training loop's side. With nothing to do, after_step is a few loads, one read of the clock and a slot
// in a ring, whatever the size of the model; everything else is behind act().
#include <cmath>
#include <exception>
#include <new>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/checkpoint/internal/checkpointer_state.h"
#include "holdfast/checkpoint/internal/save_handle_shared.h"

namespace holdfast::inline v1 {

Decision Checkpointer::State::after_step(const StepReport& report) {
  if (phase != Phase::running) [[unlikely]] {
    require(Phase::running, "after_step");
  }
  if (late_stager.open()) [[unlikely]] {
    give_up_late_staging();
  }
  source.advance(report);
  const std::int64_t step = source.step();
  loss = report.loss;
  evaluation_due = report.evaluation_due;
  loss_was_told = loss_was_told || !std::isnan(loss);
  losses.push(step, loss);
  receipt.compare(step, loss);

  if (boundary) [[unlikely]] {
    boundary = {};
  }
  disturbed = false;

  Decision decision;
  const bool asked = monitor.pending() || writer->superseded();
  if (asked || save_wanted || !planned_with_slots || policy.due(clock.now(), step)) [[unlikely]] {
    act(decision);
  }
  update_announced = false;
  if (writer->failing()) [[unlikely]] {
    decision.failure = writer->failure();
  }
  return decision;
}

// Never throws for a save: a state that cannot be staged now is a failed save like any other.
void Checkpointer::State::act(Decision& decision) {
  decision.stop = should_stop();
  if (decision.stop) decision.reason = reason_to_stop();
  if (writer->superseded()) return;
  const std::int64_t step = source.step();
  const SteadyTime now = clock.now();
  try {
    if (!std::exchange(planned_with_slots, true)) stager.plan_ahead();
    if (monitor.take_checkpoint_request()) save_wanted = true;
    last = {};
    if (decision.stop) {
      if (covered() || !wait_for_image()) return;
    } else if (!(save_wanted || policy.due(now, step)) || !stager.ready()) {
      return;  // still due at the next step, when the write in flight may be done
    }
    if (late_staging && update_announced && !decision.stop) {
      open_late();
    } else {
      internal::Staged staged = stage(Part::all);
      if (decision.stop) last = staged;
      submit(std::move(staged));
    }
    save_wanted = false;
    policy.saved(now, step);
    decision.saved = true;
  } catch (const std::exception& error) {
    staging_failed(error);
    policy.saved(now, step);  // not again at every step
    save_wanted = false;
  }
}

SaveHandle Checkpointer::State::save() {
  require(Phase::running, "save");
  drop_late();
  if (covered()) return newest;
  const SteadyTime now = clock.now();
  try {
    last = {};
    if (boundary) {
      submit(boundary);
    } else {
      check_undisturbed();
      wait_for_image();
      submit(stage(Part::all));
    }
    save_wanted = false;
    policy.saved(now, source.step());
  } catch (const std::exception& error) {
    return staging_failed(error);
  }
  return newest;
}

void Checkpointer::State::metric(const std::string& name, double value) {
  require(Phase::running, "metric");
  measurements.add(name, source.step(), value);
  bool best = false;
  for (const KeepPolicy& policy : options.keep.policies()) {
    const auto* const wanted = std::get_if<KeepBest>(&policy);
    if (wanted == nullptr || wanted->metric != name) continue;
    best = best || measurements.among_best(*wanted, source.step());
  }
  if (evaluating) {
    // The image of the boundary was begun before the value was known; leave_evaluation() takes a new one.
    best_wanted = best_wanted || best;
  } else if (best && !should_stop()) {
    save();
  }
}

SaveHandle Checkpointer::State::staging_failed(const std::exception& error) noexcept {
  const std::string text = text_or_out_of_memory(
      [&] { return "staging step " + std::to_string(source.step()) + " failed: " + what_of(error); });
  writer->note_failure(text);
  try {
    auto shared = std::make_shared<SaveHandle::Shared>(source.step());
    shared->settle(SaveStatus::failed, text);
    return SaveHandle(std::move(shared));
  } catch (const std::bad_alloc&) {
    return {};  // on nothing: that has failed, too
  }
}

bool Checkpointer::State::covered() const {
  if (newest.step() == source.step()) {
    const SaveStatus status = newest.status();
    if (status == SaveStatus::staged || status == SaveStatus::durable) return true;
  }
  return source.step() == start_step && start_is_safe;
}

bool Checkpointer::State::safe() const {
  return covered() && (newest.step() != source.step() || newest.status() != SaveStatus::staged);
}

internal::Staged Checkpointer::State::stage(Part part) {
  record.loss = loss;
  record.loss_told = loss_was_told;
  // A loop that tells its loss says NaN only when the loss is NaN.
  record.finite = std::isfinite(loss) || (std::isnan(loss) && !loss_was_told);
  record.evaluation_due = evaluation_due || evaluating;
  record.time = format_utc(clock.wall_now());
  record.metrics = measurements.recorded();
  return stager.stage(record, part);
}

void Checkpointer::State::submit(internal::Staged staged) {
  const std::int64_t step = staged.snapshot->step;
  newest = writer->submit({std::move(staged.snapshot), std::move(staged.plan), record.ancestry});
  measurements.saved(step);
}

// In slices, so that a notice that comes meanwhile is heard, and on the run's own clock.
bool Checkpointer::State::wait_for_image() {
  while (!stager.wait_ready(std::chrono::milliseconds(20))) {
    const auto left = monitor.time_left();
    if (left && *left == Duration::zero()) return false;
  }
  return true;
}

bool Checkpointer::State::should_stop() const noexcept {
  if ((writer && writer->superseded()) || monitor.stop_requested()) return true;
  try {
    // A deadline without a request to stop: commit and leave while there is time.
    return !monitor.reason().empty();
  } catch (const std::bad_alloc&) {
    return false;  // asked again at the next step
  }
}

std::string Checkpointer::State::reason_to_stop() const noexcept {
  if (writer && writer->superseded()) return writer->superseded_reason();
  return text_or_out_of_memory([&] { return monitor.reason(); });
}

}  // namespace holdfast::inline v1
