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
#include "holdfast/writing/save_handle_shared.h"

namespace holdfast { inline namespace v1 {

// What stands at the new step boundary, whoever decides what is done about it.
[[gnu::always_inline]] inline void Checkpointer::State::arrive(const StepReport& report) {
  if (late_stager.open()) [[unlikely]] {
    give_up_late_staging();
  }
  update_open = true;
  source.advance(report);
  update_open = false;
  if (boundary) [[unlikely]] {
    clear_shelf();
    boundary = {};
  }
  disturbed = false;
  const std::int64_t step = source.step();
  loss = report.loss;
  evaluation_due = report.evaluation_due;
  if (loss) {
    losses.push(step, *loss);
    started.receipt.compare(step, *loss);
    if (std::isfinite(*loss) != loss_was_finite) [[unlikely]] {
      note_loss(*loss);
    }
  }
}

// One warning when the loss stops being finite, not one a step. Rank 0 speaks for all.
void Checkpointer::State::note_loss(double value) noexcept {
  loss_was_finite = std::isfinite(value);
  if (loss_was_finite || (ranks && !ranks->leads())) return;
  log_warning(
      "the loss of step {} is {}: its checkpoints are recorded as not finite. KeepBest passes over them, and "
      "the newest finite one stays (start again from its step with resume_from to go back to it)",
      source.step(),
      std::isnan(value) ? "nan"
      : value > 0       ? "inf"
                        : "-inf");
}

Decision Checkpointer::State::after_step(const StepReport& report) {
  if (phase != Phase::running) [[unlikely]] {
    if (phase == Phase::together) return step_together(report);
    require(Phase::running, "after_step");
  }
  arrive(report);
  const std::int64_t step = source.step();

  const SteadyTime now = clock.now();
  time.step(now, writer->activity());  // one read of the clock serves both: this and the policy
  book->boundary(step);

  Decision decision;
  const bool asked = monitor.pending() || writer->superseded() || pressed || outlook.leaving();
  if (asked || save_wanted || !planned_with_slots || policy.due(now, step)) [[unlikely]] {
    act(decision);
  }
  update_announced = false;
  if (writer->failing()) [[unlikely]] {
    decision.failure = writer->failure();
  }
  return decision;
}

Decision Checkpointer::State::step_together(const StepReport& report) {
  arrive(report);
  Decision decision;
  or_abandon([&] { agree(decision); });
  update_announced = false;
  return decision;
}

void Checkpointer::State::act(Decision& decision) noexcept {
  watch->heard();
  take_requests();
  restore_limit();
  const Plan plan = plan_now();
  if (plan.move == Move::stop) tell_stop(decision);
  save_boundary(decision, plan);
  if (plan.move == Move::last_commit || plan.move == Move::wait) pause(decision);
}

// Never throws for a save: a state that cannot be staged now is a failed save like any other.
void Checkpointer::State::save_boundary(Decision& decision, const Plan& plan) noexcept {
  if (writer->superseded() || plan.move == Move::wait) return;
  const bool last_one = plan.move == Move::stop || plan.move == Move::last_commit;
  const bool urgent = last_one || plan.move == Move::commit;
  if (plan.move == Move::stop || monitor.deadline()) lift_limit();
  const std::int64_t step = source.step();
  const SteadyTime now = time.boundary();
  const Waiting waiting(time);
  BegunSave save;
  try {
    if (!std::exchange(planned_with_slots, true)) {
      stager.plan_ahead();
      stager.make_image_ahead();
    }
    last = {};
    if (policy.automatic()) choose_interval();
    if (last_one) {
      if (plan.too_late || covered() || !wait_for_image() || plan_now().too_late) return;
    } else if (!(urgent || (plan.room && (save_wanted || policy.due(now, step)))) || !stager.ready()) {
      return;  // still due at the next step, when the write in flight may be done
    }
    save = begin_save(save_wanted || urgent);
    const bool shared = ranks && ranks->round.plan != 0;
    if (late_staging && update_announced && !urgent && !shared) {
      open_late(save, waiting);
    } else if (!last_one && source.on_device()) {
      submit_independent(save, waiting);
    } else {
      internal::Staged staged = stage(Part::all);
      if (last_one) last = staged;
      submit(std::move(staged), save, waiting.so_far());
    }
    decision.save = SaveHandle(save);
    save_wanted = false;
    policy.saved(now, step);
    decision.saved = true;
  } catch (...) {
    decision.save = staging_failed(std::move(save));
    policy.saved(now, step);  // not again at every step
    save_wanted = false;
  }
}

void Checkpointer::State::choose_interval() {
  const RunFigures figures = book->figures();
  if (figures.durable == 0 || std::exchange(saves_measured, figures.durable) == figures.durable) return;
  const Duration stall = figures.lost().value_or(figures.blocked) / figures.durable;
  policy.measured({.stall = stall, .write = figures.last.write + figures.last.commit});
  if (log_enabled(LogLevel::debug)) {
    log_debug("a save costs the training {}: one every {} from here on", format_duration(stall),
              format_duration(policy.chosen_interval().value_or(Duration::zero())));
  }
}

SaveHandle Checkpointer::State::save() {
  require(Phase::running, "save");
  if (ranks) {
    save_wanted = true;
    return {};
  }
  const Waiting waiting(time);
  clear_shelf();
  settle_late();
  SaveHandle saved = save_now(waiting);
  if (evaluating) put_on_shelf();
  return saved;
}

SaveHandle Checkpointer::State::save_now(const Waiting& waiting) {
  if (covered()) {
    if (newest_begun) newest_begun->asked_for = true;
    return newest;
  }
  BegunSave save;
  try {
    last = {};
    if (boundary) {
      save = begin_save(true);
      submit(boundary, save, waiting.so_far());
    } else {
      check_undisturbed();
      wait_for_image();
      save = begin_save(true);
      internal::Staged staged = stage(Part::all);
      submit(std::move(staged), save, waiting.so_far());
    }
    save_wanted = false;
    policy.saved(waiting.began(), source.step());
  } catch (...) {
    save_wanted = save_wanted || update_open;
    return staging_failed(std::move(save));
  }
  return newest;
}

void Checkpointer::State::metric(const std::string& name, double value) {
  require(Phase::running, "metric");
  measurements.settle();
  measurements.add(name, source.step(), value);
  bool best = false;
  for (const KeepPolicy& policy : options.keep.policies()) {
    const auto* const wanted = std::get_if<KeepBest>(&policy);
    if (wanted == nullptr || wanted->metric != name) continue;
    best = best || measurements.among_best(*wanted, source.step());
  }
  if (ranks) {
    if (!best || !ranks->leads() || covered()) return;
    ranks->best[name] = value;
    save_wanted = true;
  } else if (evaluating) {
    // The image of the boundary was begun before the value was known; leave_evaluation() takes a new one.
    best_wanted = best_wanted || best;
  } else if (best && !outlook.should_stop()) {
    save();
  }
}

SaveHandle Checkpointer::State::staging_failed(BegunSave save) noexcept {
  const std::string text = text_or_out_of_memory([&] {
    const std::string failed = "staging step " + std::to_string(source.step()) + " failed: ";
    try {
      throw;
    } catch (const std::exception& error) {
      return failed + what_of(error);
    } catch (...) {
      return failed + "an exception of unknown type";
    }
  });
  writer->note_failure(text);
  try {
    if (!save) save = begin_save(true);
    save->settle(SaveStatus::failed, text);
    return SaveHandle(std::move(save));
  } catch (const std::bad_alloc&) {
    return {};  // on nothing: that has failed, too
  }
}

bool Checkpointer::State::covered() const {
  if (newest.step() == source.step()) {
    const SaveStatus status = newest.status();
    if (is_open(status) || status == SaveStatus::durable) return true;
  }
  return source.step() == started.resumed.step && started.is_safe;
}

bool Checkpointer::State::safe() const {
  return covered() && (newest.step() != source.step() || !is_open(newest.status()));
}

void Checkpointer::State::note_record() {
  started.record.loss = loss;
  started.record.finite = !loss || std::isfinite(*loss);
  started.record.evaluation_due = evaluation_due || evaluating;
  started.record.time = format_utc(clock.wall_now());
  if (ranks) {
    for (const auto& [name, value] : ranks->best) measurements.add(name, source.step(), value);
  }
  measurements.settle();
  started.record.metrics = measurements.recorded();
}

internal::Staged Checkpointer::State::stage(Part part) {
  note_record();
  const SteadyTime began = clock.now();
  internal::Staged staged = stager.stage(started.record, part, ranks ? ranks->round.plan : 0);
  staged.copied = clock.now() - began;
  return staged;
}

Checkpointer::State::BegunSave Checkpointer::State::begin_save(bool asked_for) const {
  return std::make_shared<SaveHandle::Shared>(source.step(), SaveStatus::staging, time.boundary(), asked_for,
                                              book);
}

void Checkpointer::State::submit(internal::Staged staged, const BegunSave& save, Duration waited) {
  const std::int64_t step = staged.snapshot->step;
  snapshot_in_flight = staged.snapshot;
  in_flight = staged;
  in_flight.snapshot = nullptr;
  WriteRequest request{.snapshot = std::move(staged.snapshot),
                       .plan = std::move(staged.plan),
                       .ancestry = started.record.ancestry,
                       .copied = staged.copied,
                       .complete = {},
                       .save = save};
  if (ranks) {
    ranks->best.clear();
    if (!staged.shares) request.complete = bring_own_of_others(*request.snapshot);
    if (ranks->round.owed) {
      SharedSave shared{
          .plan = request.plan, .shares = std::move(staged.shares), .number = ranks->round.number};
      request.others = std::make_shared<LedSave>(*ranks->together, step, std::move(shared), share_limits());
    }
  }
  save->update([&](SaveFigures& figures) {
    figures.blocked += waited;
    figures.staged = staged.bytes;
  });
  save->staged(clock.now());
  newest = writer->submit(std::move(request));
  if (ranks) ranks->round.owed = false;
  newest_begun = save;
  outlook.insured_by(save);
  measurements.saved_by(save);
}

// In slices, so that a notice that comes meanwhile is heard, and on the run's own clock. A save that waits
// for its turn makes room, unless somebody asked for that one and there is time for both.
bool Checkpointer::State::wait_for_image(Duration limit) {
  const SteadyTime began = clock.now();
  while (true) {
    watch->heard();
    const bool against_time = monitor.deadline().has_value();
    if (!stager.ready()) writer->recall(against_time);
    if (stager.wait_ready(std::chrono::milliseconds(20))) return true;
    if (against_time || monitor.stop_requested()) lift_limit();
    if (outlook.out_of_time(began) || clock.now() - began >= limit) return false;
  }
}

}}  // namespace holdfast::v1
