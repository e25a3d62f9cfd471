#include "holdfast/checkpoint/internal/calls.h"

#include <exception>
#include <new>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/checkpoint/internal/start/rank_peek.h"
#include "holdfast/checkpoint/internal/start/rank_start.h"
#include "holdfast/checkpoint/internal/start/run_start.h"
#include "holdfast/checkpoint/internal/start/start_peek.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// The image of an epoch's end may cost the training at most one part in so many of its time.
constexpr int kMostOfTime = 100;
constexpr char kNoImage[] =
    "the save before is being written, and no image became free before the announced end";
constexpr char kDisturbed[] =
    "an evaluation began although the state could not be copied, and it was not brought to its end";

}  // namespace

// The start.

void Calls::read_ahead() {
  if (engine_.others.leads()) engine_.start.finder().read_ahead();
}

std::optional<Peeked> Calls::peek() {
  engine_.start.require_open("peek");
  if (!engine_.others.alone()) return peek_together(engine_, engine_.others.group(), ++peeks_);
  auto head = find_head(run_, engine_.start.wait(), engine_.start.finder());
  if (!head) return std::nullopt;
  return peeked_in(*std::move(head));
}

Resumed Calls::resume() {
  engine_.start.require_open("resume");
  run_.stager.check_source();
  if (engine_.others.alone()) {
    engine_.start.claim(1, {});
    return run_.started.resumed;
  }
  RankStart start(engine_, engine_.others.group());
  if (engine_.others.leads()) {
    start.lead();
    or_abandon([&] { start.let_others_load(); });
    engine_.start.others_have_loaded();
  } else {
    start.follow();
  }
  return run_.started.resumed;
}

// The loop.

void Calls::before_update() {
  engine_.boundary.settle();
  engine_.boundary.update_begins();
  update_told_ = false;
  if (engine_.saves.copy_open()) tell_update();
}

// Most updates are no event. The calls that ask whether memory holds a boundary tell the core first.
void Calls::tell_update() {
  if (!engine_.boundary.updating() || std::exchange(update_told_, true)) return;
  driver_.call(run::BeforeUpdate{run_.step()});
}

void Calls::at_boundary(Decision& decision) {
  update_told_ = false;  // whatever update comes next is another one
  or_abandon([&] {
    const std::int64_t step = run_.step();
    run_.time.step(run_.clock.now(), run_.writer ? run_.writer->activity() : 0);
    run_.book->boundary(step);
    if (evaluating_) engine_.boundary.owe_evaluation(true);
    // At the first boundary of all ranks, because it is collective.
    if (!engine_.saves.layout_tried()) lay_out();
    if (run_.writer && run_.writer->failing()) engine_.unsaved.look();
    const DataEnd end = run_.source.position().data_end;
    const bool is_last = end == DataEnd::run || step == engine_.heartbeat.last_step();
    const RunDriver::Answer answer = driver_.call(run::StepDone{
        .step = step, .announced = engine_.boundary.update_announced(), .keep = keep(end, is_last)});
    decision.saved = answer.returned.saved;
    decision.save = answer.save;
    decision.stop = answer.returned.stop;
    if (decision.stop) decision.reason = driver_.reason();
  });
  if (run_.writer) {
    if (run_.writer->failing()) decision.failure = run_.writer->failure();
  } else if (engine_.others.group().failing()) {
    decision.failure = "rank 0's last save failed; its log says why";
  }
  if (engine_.others.alone() && run_.unsavable.known()) {
    telling_errors([&] { run_.unsavable.refuse(); },
                   [&](const Error& error) { engine_.end.break_off(error); });
  }
  if (!decision.failure) rest();
}

void Calls::lay_out() {
  try {
    if (!engine_.others.alone()) engine_.others.gather();
    engine_.saves.lay_out();
  } catch (const GroupError&) {
    throw;
  } catch (const std::exception& error) {
    run_.unsavable.learn_from(error);
    // Alone it counts as a failed save, because none can be made now. Ranks learn of it by the first save.
    if (engine_.others.alone()) {
      engine_.saves.failed(what_of(error), FailureKind::lasts);
    } else {
      log_debug("the file could not be laid out: {}", what_of(error));
    }
  }
}

// There a program works on the state after after_step(): it lowers a rate, loads the best weights, evaluates.
// With several ranks the image is rank 0's, and of the last step alone.
run::Keep Calls::keep(DataEnd end, bool is_last) {
  if (is_last) {
    if (!engine_.others.leads() && !run_.source.traits().needs_others) engine_.others.hold();
    return run::Keep::last;
  }
  const SteadyTime now = run_.time.boundary();
  const bool worth = now - kept_ >= engine_.saves.cost_of_copy() * kMostOfTime;
  if (end != DataEnd::epoch || !engine_.others.alone() || !worth) return run::Keep::nothing;
  kept_ = now;
  return run::Keep::epoch;
}

void Calls::rest() {
  const run::Quiet quiet = driver_.quiet();
  const std::int64_t step = run_.step();
  std::int64_t next = quiet.before;
  const std::int64_t last = engine_.heartbeat.last_step();
  if (last > step) next = std::min(next, last);
  if (next > step) engine_.quiet.until(step, next, quiet.until, run_.writer ? run_.writer->activity() : 0);
}

bool Calls::tick() {
  tell_update();
  const bool stop = driver_.call(run::Ticked{}).returned.stop;
  unfinished_ = unfinished_ || (stop && evaluating_);
  return stop;
}

SaveHandle Calls::save() {
  tell_update();
  engine_.saves.renew();
  const RunDriver::Answer answer = driver_.call(run::SaveCalled{run_.step()});
  // All ranks save together, so the wish goes into the next vote, and no save begins here.
  if (!engine_.others.alone()) return {};
  if (answer.save.step() == run_.step()) return answer.save;
  if (answer.returned.save > 0) return engine_.saves.handle(answer.returned.save, run_.step());
  if (driver_.covered()) return engine_.saves.of_start();
  const std::string torn = text_or_out_of_memory([this] { return why_torn(); });
  return torn.empty() ? engine_.saves.refused(kNoImage) : engine_.saves.failed(torn, FailureKind::may_pass);
}

void Calls::save_best(const std::string& name, double value) {
  if (!engine_.others.alone() && engine_.others.leads() && !driver_.covered())
    engine_.others.note_best(name, value);
  tell_update();
  engine_.saves.renew();
  driver_.call(run::BestMeasured{run_.step()});
}

std::string Calls::why_torn() const {
  if (engine_.boundary.updating()) {
    return "the update of step " + std::to_string(run_.step() + 1) +
           " has begun (before_update()) and no after_step() has ended it: memory holds no step";
  }
  if (const int rank = engine_.others.torn(); rank >= 0) {
    return "rank " + std::to_string(rank) +
           " is inside an update (before_update() without after_step()), or in an evaluation that did not "
           "come "
           "to its end: not all ranks hold the same step";
  }
  return engine_.boundary.disturbed() || evaluating_ ? kDisturbed : std::string();
}

// Evaluations.

void Calls::enter_evaluation() {
  if (evaluating_) throw UsageError("an EvaluationScope inside another one");
  run_.time.leave_step_out();
  // Before the program's code changes the memory that is being copied.
  engine_.saves.complete_copy();
  evaluating_ = true;
  unfinished_ = false;
  engine_.boundary.owe_evaluation(true);
  try {
    tell_update();
    const bool again = engine_.others.evaluation_begins();
    engine_.saves.renew();
    driver_.call(run::EvaluationBegun{run_.step(), again});
  } catch (...) {  // the scope does not come to be, so its destructor will not do this
    leave_evaluation(true);
    throw;
  }
}

void Calls::leave_evaluation(bool thrown_out) noexcept {
  evaluating_ = false;
  const bool broken = unfinished_ || thrown_out;
  if (broken && (thrown_out || engine_.others.alone())) engine_.boundary.disturb();
  engine_.boundary.owe_evaluation(broken || engine_.boundary.disturbed());
  if (engine_.end.over()) return;
  if (!broken) engine_.saves.renew();
  try {
    driver_.call(run::EvaluationEnded{.thrown = thrown_out, .cut_short = unfinished_});
  } catch (const std::exception& error) {  // a destructor must not throw
    log_warning("the end of the evaluation at step {}: {}", run_.step(), what_of(error));
  }
}

// The end.

void Calls::finish() {
  or_abandon([&] {
    const SteadyTime began = run_.clock.now();
    driver_.listener().end();
    engine_.heartbeat.ending();
    tell_update();
    std::string why = driver_.reason();
    const bool told = !why.empty();
    if (told && run_.writer) run_.writer->leave_soon();
    // It reads all frozen weights, which takes time.
    const bool stale = !told && engine_.saves.changed_unseen_at_end();
    const bool unsure = engine_.boundary.updating() || engine_.boundary.disturbed() || evaluating_;
    engine_.saves.keep_last();
    engine_.saves.renew();
    if (!stale && !unsure && engine_.others.leads() && !driver_.covered()) engine_.saves.tell_changes();
    const RunDriver::Answer answer = driver_.call(run::FinishCalled{run_.step(), stale});
    // A stop may have been heard in the call, by the last vote or while frozen weights were read.
    if (why.empty() && answer.exit->how != run::Ending::complete) why = driver_.reason();
    // Such as an end that was withdrawn before the call.
    if (answer.exit->how == run::Ending::complete) why.clear();
    run_.started.receipt.close();
    if (engine_.others.leads()) {
      engine_.others.settle("the run has ended");
      engine_.end.finish(*answer.exit, {.began = began, .reason = why, .torn = why_torn()});
      if (driver_.tells_outcome()) engine_.others.tell_outcome(engine_.end.code(), engine_.end.reason());
    } else {
      if (!engine_.others.rests()) engine_.end.leave_thread_behind();
      engine_.others.settle("rank 0 could not write it: its log says why");
      engine_.end.adopt_outcome(answer.exit->code, driver_.told_reason());
    }
  });
}

template <class Work>
void Calls::or_abandon(const Work& work) {
  if (engine_.others.alone()) return work();
  try {
    work();
  } catch (const Error& error) {
    abandon(error);
    throw;
  } catch (const std::bad_alloc&) {
    const OutOfMemoryError error;
    abandon(error);
    throw error;
  } catch (const std::exception& what) {
    const Error error(what_of(what));
    abandon(error);
    throw error;
  }
}

// A rank is lost, or the ranks took different numbers of steps.
void Calls::abandon(const Error& error) noexcept {
  // The end is written already, and only telling the other ranks has failed.
  if (engine_.end.over()) return;
  engine_.others.limit_waits(kPartingGrace);
  engine_.end.break_off(error);
  if (!engine_.others.rests()) engine_.end.leave_thread_behind();
  engine_.others.settle("a rank was lost before rank 0 reported the outcome");
}

void Calls::leave() noexcept {
  engine_.others.settle("this rank ended before it learned the outcome");
  engine_.others.limit_waits(kPartingGrace);
}

}}}  // namespace holdfast::v0_2::internal
