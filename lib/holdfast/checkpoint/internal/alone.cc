#include "holdfast/checkpoint/internal/alone.h"

#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/checkpoint/internal/run_start.h"
#include "holdfast/checkpoint/internal/start_peek.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// How soon a withdrawn notice, or a stop, ends the pause.
constexpr Duration kPauseSlice = std::chrono::milliseconds(100);
// How soon a notice is heard while the pause waits for the writer.
constexpr Duration kWriterSlice = std::chrono::milliseconds(20);

}  // namespace

std::optional<Peeked> Alone::peek() {
  engine_.start.require_open("peek");
  auto head = find_head(engine_.run, engine_.start.wait(), engine_.start.finder());
  if (!head) return std::nullopt;
  return peeked_in(*std::move(head));
}

Resumed Alone::resume() {
  engine_.start.require_open("resume");
  engine_.run.stager.check_source();
  engine_.start.claim(1, {});
  return engine_.run.started.resumed;
}

void Alone::at_boundary(Decision& decision) {
  Run& run = engine_.run;
  const AsyncWriter& writer = *run.writer;
  const std::int64_t step = run.step();
  const SteadyTime now = run.clock.now();  // one read of the clock serves both: this and the schedule
  run.time.step(now, writer.activity());
  run.book->boundary(step);

  if (writer.failing()) [[unlikely]] {
    engine_.unsaved.look();
  }
  const bool asked =
      run.monitor.pending() || writer.superseded() || engine_.limit.lifted() || run.outlook.leaving();
  const SaveSchedule& schedule = engine_.schedule;
  if (asked || schedule.wanted() || !engine_.boundary_saves.layout_tried() || schedule.due(now, step))
      [[unlikely]] {
    act(decision);
  }
  const DataEnd end = run.source.data_end();
  const bool is_last = engine_.is_last_step(end);
  if (is_last || end == DataEnd::epoch) [[unlikely]] {
    engine_.held.hold(is_last);
  }
  if (writer.failing()) [[unlikely]] {
    decision.failure = writer.failure();
    telling_errors([&] { engine_.saves.unsavable().refuse(); },
                   [&](const Error& error) { engine_.end.break_off(error); });
  }
  engine_.rest_until(schedule.next_due_step(now), schedule.next_due_time(now));
}

void Alone::act(Decision& decision) noexcept {
  engine_.listener.heard();
  engine_.schedule.take_requests();
  // After a withdrawn deadline writes keep to their limit again.
  engine_.limit.restore();
  const Plan plan = engine_.plan();
  if (plan.move == Move::stop) engine_.tell_stop(decision);
  engine_.boundary_saves.save(decision, plan);
  if (plan.pauses()) pause(decision);
}

// Before an announced end. Looks at the notices as a step would. While the writer works, this waits for it;
// what a plan says then may have become possible.
void Alone::pause(Decision& decision) noexcept {
  Run& run = engine_.run;
  const TrainingTime::Pause paused(run.time);
  // A save that this boundary has just tried is not tried again at once.
  const bool tried = decision.save.step() == run.step();
  SteadyTime retry = paused.began() + (tried ? kSaveAgainAfter : Duration::zero());
  bool said = false;
  while (true) {
    engine_.listener.heard();
    engine_.schedule.take_requests();
    const Plan plan = engine_.plan();
    if (plan.move == Move::stop) {
      engine_.tell_stop(decision);
      engine_.boundary_saves.save(decision, plan);
      break;
    }
    if (!plan.pauses()) break;
    if (plan.move == Move::last_commit && run.clock.now() >= retry) {
      engine_.boundary_saves.save(decision, plan);
      retry = run.clock.now() + kSaveAgainAfter;
    }
    // Nothing is said or approved while a write is in flight: it may be the save that this pause is for.
    if (!run.writer->wait_idle(kWriterSlice)) continue;
    if (!std::exchange(said, true)) {
      log_info("pausing at step {} until the machine goes away; the newest durable step is {}", run.step(),
               run.newest_durable());
      run.ledger.pause(run.step(), "the end is near");
    }
    // Only once the step is durable: Azure ends the machine as soon as its event is approved.
    engine_.listener.let_go(engine_.saves.safe());
    run.clock.sleep_for(kPauseSlice);
  }
  // The training may go on, and an event that is listed later must not be approved by this pause.
  engine_.listener.let_go(false);
  if (!said || decision.stop) return;
  run.ledger.go_on(run.step(), "the machine stays");
  log_info("going on after a pause of {}", format_duration(paused.so_far()));
}

bool Alone::tick() {
  Outlook& outlook = engine_.run.outlook;
  const bool stop = outlook.should_stop();
  // For good: the program leaves its loop by this answer, whatever a source withdraws later.
  if (stop) outlook.leave();
  engine_.evaluation.tick(stop);
  return stop;
}

SaveHandle Alone::save() {
  const Waiting waiting(engine_.run.time);
  // From here on only this thread submits this boundary; the watch could otherwise write it a second time.
  engine_.evaluation.take_back();
  engine_.evaluation.settle_late();
  SaveHandle saved = engine_.boundary_saves.save_now(waiting);
  // Back on the shelf, because the save that has just begun may fail.
  if (engine_.evaluation.running()) engine_.evaluation.offer();
  return saved;
}

void Alone::save_best(const std::string& /*name*/, double /*value*/) {
  if (engine_.evaluation.running()) {
    engine_.evaluation.want_best();
  } else if (!engine_.run.outlook.should_stop()) {
    // After a stop, the last save follows anyway.
    save();
  }
}

void Alone::enter_evaluation() { engine_.evaluation.keep_boundary(); }

void Alone::leave_evaluation(bool thrown_out) {
  const bool save_best = engine_.evaluation.leave(thrown_out, false);
  if (save_best && !engine_.end.over() && !engine_.run.outlook.should_stop()) save();
}

}}}  // namespace holdfast::v0_2::internal
