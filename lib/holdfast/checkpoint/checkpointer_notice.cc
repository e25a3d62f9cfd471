// What notices ask for, and the pause before an announced end.
//
// Nothing here ends a training by itself, and nothing throws: where there is no memory to think, the step
// goes on and is asked again.
#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/checkpoint/internal/checkpointer_state.h"
#include "holdfast/checkpoint/internal/save_handle_shared.h"

namespace holdfast::inline v1 {
namespace {

constexpr Duration kPauseSlice = std::chrono::milliseconds(100);
constexpr Duration kRetryAfter = std::chrono::seconds(2);
constexpr Duration kRiskLasts = std::chrono::minutes(30);
// A steady clock stands still while the machine sleeps, its wall clock does not.
constexpr Duration kSlept = std::chrono::seconds(5);
// With less time to the deadline there is none to lose with a trial.
constexpr Duration kTimeForProbe = std::chrono::seconds(20);

Duration wall_ahead(const Clock& clock) {
  return std::chrono::duration_cast<Duration>(clock.wall_now().time_since_epoch()) -
         std::chrono::duration_cast<Duration>(clock.now().time_since_epoch());
}

}  // namespace

void Checkpointer::State::listen() {
  watch = std::make_unique<internal::NoticeWatch>(
      clock, internal::NoticeWatch::Callbacks{
                 .pending = [this] { return monitor.pending(); },
                 .look = [this] { static_cast<void>(commit_from_shelf()); },
                 .patience = [this] { return std::max(options.deaf_after, costs.costs().step * 2); },
                 .what =
                     [this] {
                       std::string text = monitor.reason();
                       if (text.empty()) text = "a save is asked for";
                       if (const auto left = monitor.time_left())
                         text += ", " + format_duration(*left) + " left";
                       return text;
                     }});
  monitor.listen([this](const Notice& notice) {
    ledger.notice(notice);
    watch->wake(notice.kind == NoticeKind::at_risk ? options.on_risk : std::string());
  });
}

void Checkpointer::State::take_requests() {
  if (monitor.take_checkpoint_request()) save_wanted = true;
  if (!monitor.take_risk()) return;
  save_wanted = true;
  policy.hurry_until(clock.now() + kRiskLasts);
  log_info("the machine is at risk: a save now, and the interval is halved for {}",
           format_duration(kRiskLasts));
}

bool Checkpointer::State::must_stop() const noexcept {
  return leaving || monitor.stop_requested() || (writer && writer->superseded());
}

bool Checkpointer::State::should_stop() noexcept {
  if (must_stop()) return true;
  try {
    const auto notice = monitor.standing();
    if (!notice || notice->hibernates || clock.now() >= *notice->deadline + kAliveAfter) return false;
    pursue(*notice);
    return pursuit->policy == OnNotice::exit;
  } catch (const std::bad_alloc&) {
    return false;  // asked again at the next step
  }
}

std::string Checkpointer::State::reason_to_stop() const noexcept {
  if (writer && writer->superseded()) return writer->superseded_reason();
  return text_or_out_of_memory([&] {
    if (leaving) return leaving_reason;
    const bool exits = pursuit && pursuit->policy == OnNotice::exit;
    return monitor.stop_requested() || exits ? monitor.reason() : std::string();
  });
}

void Checkpointer::State::leave() noexcept {
  if (leaving) return;
  leaving_reason = reason_to_stop();
  leaving = true;
}

void Checkpointer::State::tell_stop(Decision& decision) noexcept {
  leave();
  decision.stop = true;
  decision.reason = reason_to_stop();
}

// A notice is the same as long as its source has neither withdrawn it nor told another one.
void Checkpointer::State::pursue(const Notice& notice) {
  if (pursuit && pursuit->source == notice.source && pursuit->seen == *notice.seen) return;
  pursuit = Pursuit{.source = notice.source,
                    .seen = *notice.seen,
                    .policy = chosen_policy(notice),
                    .wall_ahead = wall_ahead(clock),
                    .insurance = nullptr};
  said_too_late = false;
}

OnNotice Checkpointer::State::chosen_policy(const Notice& notice) const noexcept {
  if (options.on_notice != OnNotice::callback) return options.on_notice;
  try {
    const Duration left = std::max(Duration(*notice.deadline - clock.now()), Duration::zero());
    const OnNotice chosen = options.decide(notice, left);
    return chosen == OnNotice::callback ? OnNotice::train_on : chosen;
  } catch (const std::exception& error) {
    log_warning("what to do about the notice could not be decided ({}): training on", what_of(error));
  } catch (...) {
    log_warning("what to do about the notice could not be decided: training on");
  }
  return OnNotice::train_on;
}

Standing Checkpointer::State::standing_of_writer() const noexcept {
  Standing now{.writing = writer->writing_for()};
  now.first = !now.writing && newest_durable() < 0;
  return now;
}

std::int64_t Checkpointer::State::newest_durable() const noexcept {
  return std::max(writer->last_step(), started_from.step);
}

Standing Checkpointer::State::standing() const {
  Standing now = standing_of_writer();
  now.covered = covered();
  if (pursuit && pursuit->insurance) {
    const SaveStatus status = SaveHandle(pursuit->insurance).status();
    now.insured = is_open(status) || status == SaveStatus::durable;
  }
  return now;
}

// What ranks decide at one step boundary they do at the next.
Costs Checkpointer::State::costs_together() const noexcept {
  Costs known = costs.costs();
  if (crew) known.agreement = known.step + crew->brought_in;
  return known;
}

Plan Checkpointer::State::plan_now() noexcept {
  try {
    if (must_stop()) {
      const Plan plan = plan_for_stop(clock.now(), monitor.deadline(), costs.costs(), standing());
      say_too_late(plan);
      return plan;
    }
    while (const auto notice = monitor.standing()) {
      pursue(*notice);
      const SteadyTime now = clock.now();
      if (notice->hibernates && woke_up()) {
        log_info("the machine has slept and is awake again: the run goes on");
        monitor.dismiss(now - kAliveAfter, true);
        continue;
      }
      const Plan plan = plan_for_deadline(now, {.at = *notice->deadline, .hibernates = notice->hibernates},
                                          costs_together(), standing(), pursuit->policy);
      if (plan.move != Move::go_on) {
        say_too_late(plan);
        return plan;
      }
      log_info("the machine lives {} after its end was due ({}): the run goes on",
               format_duration(now - *notice->deadline), notice->text);
      monitor.dismiss(now - kAliveAfter);
    }
    pursuit.reset();
    said_too_late = false;
  } catch (const std::exception& error) {
    log_debug("no plan for the notice: {}", what_of(error));
  }
  return {};
}

bool Checkpointer::State::woke_up() const { return wall_ahead(clock) - pursuit->wall_ahead > kSlept; }

void Checkpointer::State::say_too_late(const Plan& plan) noexcept {
  if (!plan.too_late || std::exchange(said_too_late, true)) return;
  const Costs known = costs.costs();
  const auto left = monitor.time_left();
  const std::int64_t durable = newest_durable();
  const std::string too_late = text_or_out_of_memory([&] {
    std::string text = "no time for a save of step " + std::to_string(source.step());
    if (known.commit) text += ", which takes about " + format_duration(*known.commit);
    if (left) text += ": " + format_duration(*left) + " left";
    return text;
  });
  if (durable >= 0) {
    log_warning("{}; step {} is the newest that is durable", too_late, durable);
  } else {
    log_warning("{}; nothing of this run is durable", too_late);
  }
}

// Only where a state is much larger than what is tried out: otherwise its save is the quicker measurement.
bool Checkpointer::State::probe_first(const Plan& plan) {
  if (plan.move != Move::commit && plan.move != Move::last_commit) return false;
  if (writer->probing()) return true;
  const std::uint64_t bytes = stager.bytes();
  if (!pursuit || pursuit->probed || options.probe_bytes == 0 || bytes <= options.probe_bytes) return false;
  const auto left = monitor.time_left();
  if (costs.knows_commits() || writer->writing_for() || !left || *left < kTimeForProbe) return false;
  pursuit->probed = true;
  writer->probe(options.probe_bytes, bytes);
  return writer->probing();
}

// Looks at the notices as a step would. While the writer works, it waits for it; what a plan says then may
// have become possible.
void Checkpointer::State::pause(Decision& decision) noexcept {
  const SteadyTime began = clock.now();
  const Duration waited = waited_since;
  SteadyTime retry = began;
  bool said = false;
  while (true) {
    watch->heard();
    take_requests();
    const Plan plan = plan_now();
    if (plan.move == Move::stop) {
      tell_stop(decision);
      save_boundary(decision, plan);
      break;
    }
    if (plan.move != Move::wait && plan.move != Move::last_commit) break;
    if (plan.move == Move::last_commit && clock.now() >= retry) {
      save_boundary(decision, plan);
      retry = clock.now() + kRetryAfter;
    }
    if (!writer->wait_idle(std::chrono::milliseconds(20))) continue;
    if (!std::exchange(said, true)) {
      log_info("pausing at step {} until the machine goes away; the newest durable step is {}", source.step(),
               newest_durable());
      ledger.pause(source.step(), "the end is near");
    }
    clock.sleep_for(kPauseSlice);
  }
  waited_since = waited + (clock.now() - began);  // it is neither step nor save
  if (!said || decision.stop) return;
  ledger.go_on(source.step(), "the machine stays");
  log_info("going on after a pause of {}", format_duration(clock.now() - began));
}

void Checkpointer::State::press() noexcept {
  if (crew) crew->hurry = true;
  if (!writer) return;
  writer->hurry(true);
  pressed = true;
}

void Checkpointer::State::relax() noexcept {
  if (crew && !crew->leads() && !crew->end && !must_stop()) crew->hurry = false;
  if (!pressed || must_stop() || monitor.deadline()) return;
  writer->hurry(false);
  pressed = false;
}

// Without a stop, a deadline that had passed before somebody began to wait is one that the machine has
// outlived; and whoever has come to the end of the run has nothing better to do than to try.
bool Checkpointer::State::out_of_time(SteadyTime since) const noexcept {
  if (unhurried && !must_stop()) return false;
  const auto deadline = monitor.deadline();
  return deadline && clock.now() >= *deadline && (monitor.stop_requested() || *deadline > since);
}

bool Checkpointer::State::commit_fits() const noexcept {
  return !plan_for_stop(clock.now(), monitor.deadline(), costs.costs(), standing_of_writer()).too_late;
}

// It stays there until it is durable: a write of it that is under way may fail.
void Checkpointer::State::put_on_shelf() noexcept {
  if (!boundary || safe()) return;
  const std::lock_guard lock(shelf.mutex);
  shelf.image = boundary;
  shelf.boundary = boundary_time;
  shelf.tried = newest.step() == source.step() ? newest : SaveHandle();
  shelf.retry = clock.now();
}

bool Checkpointer::State::commit_from_shelf() noexcept {
  try {
    const std::lock_guard lock(shelf.mutex);
    if (!shelf.image) return false;
    const SaveStatus status = shelf.tried.status();
    if (is_open(status) || status == SaveStatus::durable) return true;
    const SteadyTime now = clock.now();
    if (writer->superseded() || now < shelf.retry || !commit_fits()) return false;
    shelf.retry = now + kRetryAfter;
    auto save = std::make_shared<SaveHandle::Shared>(shelf.image.snapshot->step, SaveStatus::staging,
                                                     shelf.boundary, true, book);
    save->staged(now);
    shelf.tried = writer->submit({.snapshot = shelf.image.snapshot,
                                  .plan = shelf.image.plan,
                                  .ancestry = record.ancestry,
                                  .copied = shelf.image.copied,
                                  .save = save});
    shelf.save = std::move(save);
    return true;
  } catch (const std::exception& error) {  // the training thread has the image, too
    log_debug("the boundary could not be handed to the writer: {}", what_of(error));
    return false;
  }
}

void Checkpointer::State::clear_shelf() noexcept {
  const std::lock_guard lock(shelf.mutex);
  shelf.image = {};
  shelf.tried = {};
  const BegunSave save = std::exchange(shelf.save, nullptr);
  if (!save) return;
  newest = SaveHandle(save);
  newest_begun = save;
  policy.saved(save->boundary, save->step);
  if (pursuit) pursuit->insurance = save;
  try {
    measurements.saved(save->step);
  } catch (const std::bad_alloc&) {
    log_debug("a value that was measured at this step may be forgotten: no memory");
  }
}

}  // namespace holdfast::inline v1
