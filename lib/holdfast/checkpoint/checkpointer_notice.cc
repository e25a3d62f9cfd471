// What notices ask for, and the pause before an announced end.
//
// Nothing here ends a training by itself, and nothing throws: where there is no memory to think, the step
// goes on and is asked again.
#include <algorithm>
#include <exception>
#include <new>
#include <thread>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/checkpoint/internal/checkpointer_state.h"
#include "holdfast/writing/save_handle_shared.h"

namespace holdfast { inline namespace v1 {
namespace {

constexpr Duration kPauseSlice = std::chrono::milliseconds(100);
constexpr Duration kRetryAfter = std::chrono::seconds(2);
constexpr Duration kRiskLasts = std::chrono::minutes(30);
}  // namespace

void Checkpointer::State::listen() {
  watch = std::make_unique<internal::NoticeWatch>(
      clock, internal::NoticeWatch::Callbacks{
                 .pending = [this] { return monitor.pending(); },
                 .look =
                     [this] {
                       if (!ranks || monitor.pending() || ranks->channel.called()) commit_from_shelf();
                     },
                 .waits = [this] { return ranks && ranks->leads() && evaluating; },
                 .patience = [this] { return std::max(options.notices.deaf_after, costs.costs().step * 2); },
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
    if (ranks && notice.stands_still) ranks->channel.expect_silence(*notice.stands_still);
    if (ranks && notice.kind == NoticeKind::thawed) ranks->channel.expect_silence(Duration::zero());
    if (ranks && monitor.pending()) ranks->channel.call(true);
    try {
      watch->wake(command_for(notice));
    } catch (const std::bad_alloc&) {
      log_warning("nobody watches whether the notice is heard, and no command is run: out of memory");
    }
  });
}

internal::RiskCommand Checkpointer::State::command_for(const Notice& notice) const {
  if (notice.kind != NoticeKind::at_risk) return {};
  internal::RiskCommand command{.text = options.notices.on_risk};
  command.context.directory = options.directory.string();
  command.context.step = book->step();
  command.context.reason = notice.text;
  if (const auto deadline = notice.deadline ? notice.deadline : monitor.deadline()) {
    command.context.deadline =
        clock.wall_now() + std::chrono::duration_cast<WallTime::duration>(*deadline - clock.now());
  }
  return command;
}

void Checkpointer::State::take_requests() {
  if (monitor.take_checkpoint_request()) save_wanted = true;
  if (!monitor.take_risk()) return;
  save_wanted = true;
  policy.hurry_until(clock.now() + kRiskLasts);
  log_info("the machine is at risk: a save now, and the interval is halved for {}",
           format_duration(kRiskLasts));
}

void Checkpointer::State::tell_stop(Decision& decision) noexcept {
  outlook.leave();
  decision.stop = true;
  decision.reason = outlook.reason();
}

Standing Checkpointer::State::standing_of_writer() const noexcept {
  return {.writing = writer->writing_for()};
}

std::int64_t Checkpointer::State::newest_durable() const noexcept {
  return std::max(writer->last_step(), started.durable.step);
}

internal::Reached Checkpointer::State::reached() const {
  internal::Reached at{.step = source.step(), .durable = newest_durable(), .standing = standing_of_writer()};
  at.standing.covered = covered();
  return at;
}

Plan Checkpointer::State::plan_now() noexcept { return outlook.decide(reached()); }

// Looks at the notices as a step would. While the writer works, it waits for it; what a plan says then may
// have become possible.
void Checkpointer::State::pause(Decision& decision) noexcept {
  const internal::TrainingTime::Pause paused(time);
  SteadyTime retry = paused.began();
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
    may_go = safe();
    clock.sleep_for(kPauseSlice);
  }
  may_go = false;
  if (!said || decision.stop) return;
  ledger.go_on(source.step(), "the machine stays");
  log_info("going on after a pause of {}", format_duration(paused.so_far()));
}

void Checkpointer::State::lift_limit() noexcept {
  if (ranks) ranks->hurry = true;
  if (!writer) return;
  writer->hurry(true);
  pressed = true;
}

void Checkpointer::State::restore_limit() noexcept {
  if (ranks && !ranks->leads() && !ranks->end && !outlook.must_stop()) ranks->hurry = false;
  if (!pressed || outlook.must_stop() || monitor.deadline()) return;
  writer->hurry(false);
  pressed = false;
}

bool Checkpointer::State::commit_fits() const noexcept { return outlook.fits(standing_of_writer()); }

// It stays there until it is durable: a write of it that is under way may fail.
void Checkpointer::State::put_on_shelf(std::string own_text) noexcept {
  if (!boundary || safe()) return;
  const std::lock_guard lock(shelf.mutex);
  shelf.image = boundary;
  shelf.own_text = std::move(own_text);
  shelf.boundary = time.boundary();
  shelf.tried = newest.step() == source.step() ? newest : SaveHandle();
  shelf.retry = clock.now();
}

bool Checkpointer::State::commit_from_shelf() noexcept {
  try {
    if (ranks && !bring_own_to_shelf()) return false;
    std::unique_lock lock(shelf.mutex);
    // Another evaluation may have begun since: what is the other ranks' own is not in its image.
    if (!shelf.image || !shelf.own_text.empty()) return false;
    const SaveStatus status = shelf.tried.status();
    if (is_open(status) || status == SaveStatus::durable) return true;
    const SteadyTime now = clock.now();
    if (writer->superseded() || now < shelf.retry || !commit_fits()) return false;
    shelf.retry = now + kRetryAfter;
    auto save = std::make_shared<SaveHandle::Shared>(shelf.image.snapshot->step, SaveStatus::staging,
                                                     shelf.boundary, true, book);
    WriteRequest request{.snapshot = shelf.image.snapshot,
                         .plan = shelf.image.plan,
                         .ancestry = started.record.ancestry,
                         .copied = shelf.image.copied,
                         .usual = !ranks || !ranks->sharing,
                         .save = save};
    shelf.tried = SaveHandle(save);
    shelf.save = save;
    // on_save is called on the way, and may be slow, or ask for something that takes the mutex.
    shelf.handing = std::this_thread::get_id();
    lock.unlock();
    try {
      save->staged(now);
      writer->submit(std::move(request));
    } catch (const std::exception& error) {  // nobody may wait for it
      save->settle(SaveStatus::failed, what_of(error));
    }
    lock.lock();
    shelf.handing.reset();
    shelf.handed_over.notify_all();
    return true;
  } catch (const std::exception& error) {  // the training thread has the image, too
    log_debug("the boundary could not be handed to the writer: {}", what_of(error));
    return false;
  }
}

// What another thread is handing over goes to the writer before whatever this one submits next.
void Checkpointer::State::clear_shelf() noexcept {
  std::unique_lock lock(shelf.mutex);
  shelf.handed_over.wait(lock,
                         [&] { return !shelf.handing || *shelf.handing == std::this_thread::get_id(); });
  shelf.image = {};
  shelf.own_text.clear();
  shelf.tried = {};
  const BegunSave save = std::exchange(shelf.save, nullptr);
  if (!save) return;
  newest = SaveHandle(save);
  newest_begun = save;
  policy.saved(save->boundary, save->step);
  try {
    measurements.saved_by(save);
    if (ranks) outlook.answered_by(save);  // tick() has not looked at the notice, which may be another rank's
  } catch (const std::bad_alloc&) {
    log_debug("a value that was measured at this step may be forgotten: no memory");
  }
  outlook.insured_by(save);
}

}}  // namespace holdfast::v1
