#include "holdfast/checkpoint/internal/ranks.h"

#include <exception>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/checkpoint/internal/rank_peek.h"
#include "holdfast/checkpoint/internal/rank_start.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// Each look is a vote of all ranks.
constexpr Duration kPauseLook = std::chrono::milliseconds(100);

}  // namespace

Ranks::Ranks(Engine& engine, RankGroup& group, RankPartners& partners)
    : engine_(engine),
      run_(engine.run),
      group_(group),
      partners_(partners),
      rounds_(partners.rounds()),
      sender_(engine, group, rounds_),
      votes_(engine, group, rounds_, sender_),
      end_(engine, group, partners, sender_, votes_) {
  run_.book->count_in(group_.channel().saves_in_flight());
  if (group_.leads()) run_.verifier.share_images();
  // From here on costs include the time in which ranks agree.
  run_.outlook.add_agreement(Duration::zero());
}

// The start.

void Ranks::read_ahead() {
  if (group_.leads()) engine_.start.finder().read_ahead();
}

std::optional<Peeked> Ranks::peek() {
  engine_.start.require_open("peek");
  return peek_together(engine_, group_, ++peeks_);
}

Resumed Ranks::resume() {
  engine_.start.require_open("resume");
  run_.stager.check_source();
  RankStart start(engine_, group_, rounds_, sender_);
  if (group_.leads()) {
    start.lead();
    end_.or_abandon([&] { start.let_others_load(); });
  } else {
    start.follow();
  }
  return run_.started.resumed;
}

// The loop.

void Ranks::at_boundary(Decision& decision) {
  end_.or_abandon([&] { vote_at_boundary(decision); });
}

void Ranks::vote_at_boundary(Decision& decision) {
  const std::int64_t step = run_.step();
  run_.time.step(run_.clock.now(), run_.writer ? run_.writer->activity() : 0);
  // At the first boundary of all ranks, because bring_together() is collective.
  if (!engine_.boundary_saves.layout_tried()) lay_out();
  run_.book->boundary(step);
  if (group_.leads() && run_.writer->failing()) engine_.unsaved.look();
  if (run_.monitor.pending()) engine_.listener.heard();

  if (votes_.pending()) {
    const Agreed agreed = votes_.await("the vote of a step boundary");
    votes_.learn_cadence(agreed);
    votes_.learn(agreed);
    act(decision, agreed);
  }
  if (!decision.stop && votes_.at(step)) {
    engine_.schedule.take_requests();
    // In this order: a notice that arrives between the two lines makes a call of its own.
    group_.channel().call(false);
    if (run_.monitor.pending()) group_.channel().call(true);
    engine_.limit.restore();
    rounds_.lay_out_again();
    votes_.post(group_.leads() ? engine_.plan() : Plan{});
  }
  if (!decision.stop && engine_.is_last_step(run_.source.data_end())) hold_last_boundary();
  if (group_.leads()) {
    if (run_.writer->failing()) decision.failure = run_.writer->failure();
  } else if (group_.failing()) {
    decision.failure = "rank 0's last save failed; its log says why";
  }
  if (!votes_.pending() && !group_.failing()) engine_.rest_until(votes_.next_step(), {});
}

// For finish(), which others may reach first: each rank keeps what it has, and none waits for another. A
// state of which other ranks hold parts cannot be kept like that.
void Ranks::hold_last_boundary() {
  if (run_.source.needs_others()) return;
  if (!group_.leads()) return sender_.hold();
  // A save by all ranks is no whole image, and has this boundary already.
  if (!group_.sharing() || !engine_.saves.covered()) engine_.held.hold(true);
}

void Ranks::lay_out() {
  partners_.bring_together();
  // Rank 0 alone writes the file, so this rank needs no plan of it.
  const bool writes = group_.leads() || group_.sharing();
  if (!writes) engine_.boundary_saves.skip_layout();
  try {
    writes ? engine_.boundary_saves.lay_out() : run_.stager.check_source();
  } catch (const std::exception& error) {  // the first save will fail for the same reason, and log it
    engine_.saves.unsavable().learn_from(error);
    log_debug("the file could not be laid out: {}", what_of(error));
  }
}

void Ranks::act(Decision& decision, const Agreed& agreed) {
  engine_.schedule.take_requests();
  engine_.limit.restore();
  // A stop without time for a save does not wait for texts that only a save needs.
  const bool stops = agreed.stop >= 0;
  const bool saves = agreed.pause >= 0 || agreed.saves();
  if (stops || saves) engine_.boundary.settle();
  if (stops ? !agreed.hopeless() : saves) partners_.bring_together();
  const Plan plan = group_.leads() ? engine_.plan() : Plan{};
  if (agreed.save >= 0 || engine_.schedule.wanted()) run_.outlook.warnings().no_room(run_.step(), plan);
  if (stops) {
    stop(decision, agreed);
  } else if (agreed.pause >= 0) {
    pause(decision, plan, agreed);
  } else if (saves) {
    if (group_.leads()) engine_.schedule.want();
    // The vote was cast a step ago. What was possible then may be forbidden now.
    const bool room = plan.room && !plan.too_late;
    save(decision, agreed, {.move = plan.move == Move::commit ? Move::commit : Move::train, .room = room},
         false);
  }
}

void Ranks::save(Decision& decision, const Agreed& agreed, const Plan& plan, bool last_one) {
  rounds_.begin(agreed);
  group_.leads() ? engine_.boundary_saves.save(decision, plan) : sender_.send(decision, last_one);
  rounds_.end(decision);
}

void Ranks::stop(Decision& decision, const Agreed& agreed) {
  votes_.hear_stop(agreed);
  engine_.tell_stop(decision);
  if (agreed.hopeless()) {
    partners_.end_without_save();
    if (group_.leads() && !engine_.saves.covered()) run_.outlook.warnings().too_late(engine_.saves.reached());
    return;
  }
  // The step is durable: nothing is left to save.
  if (agreed.durable >= run_.step()) return;
  save(decision, agreed, group_.leads() ? engine_.plan() : Plan{}, true);
}

// All ranks pause together and vote continuously: news on any rank ends the pause for all.
void Ranks::pause(Decision& decision, Plan plan, Agreed agreed) {
  const TrainingTime::Pause paused(run_.time);
  votes_.retry_at(paused.began());
  log_info("pausing at step {} with all ranks until the machine goes away", run_.step());
  if (group_.leads()) run_.ledger.pause(run_.step(), "the end is near");
  if (!group_.leads()) plan.move = Move::wait;
  while (true) {
    engine_.listener.heard();
    if (group_.sharing() && agreed.shares()) {
      // All ranks write this save, so all must have agreed on it.
      if (agreed.saves() && agreed.durable < run_.step()) {
        save(decision, agreed, plan, true);
        votes_.retry_at(run_.clock.now() + kSaveAgainAfter);
      }
    } else if (!group_.leads()) {
      sender_.tell_own();
    } else if (plan.move == Move::last_commit && run_.stager.ready() &&
               run_.clock.now() >= votes_.retry_at()) {
      engine_.boundary_saves.save(decision, plan);
      votes_.retry_at(run_.clock.now() + kSaveAgainAfter);
    }
    votes_.post(plan);
    agreed = votes_.await("a vote in the pause", true);
    votes_.learn(agreed);
    engine_.schedule.take_requests();
    if (agreed.stop >= 0) {
      stop(decision, agreed);
      break;
    }
    if (agreed.pause < 0) break;
    engine_.listener.let_go(agreed.durable >= run_.step());
    run_.clock.sleep_for(kPauseLook);
    if (group_.leads()) plan = engine_.plan();
  }
  engine_.listener.let_go(false);
  if (decision.stop) return;
  if (group_.leads()) run_.ledger.go_on(run_.step(), "the machine stays");
  log_info("going on after a pause of {}", format_duration(paused.so_far()));
}

// A stop counts only when all ranks have agreed on it.
bool Ranks::tick() { return run_.outlook.leaving(); }

SaveHandle Ranks::save() {
  // All ranks save together, so the wish goes into the next vote, and no save begins here.
  engine_.schedule.want();
  return {};
}

void Ranks::save_best(const std::string& name, double value) {
  if (!group_.leads() || engine_.saves.covered()) return;
  partners_.note_best(name, value);
  engine_.schedule.want();
}

// Rank 0 holds an image of the state that all ranks share, and each other rank sends its own state. So rank 0
// can commit that boundary alone when an end is announced to any rank. It must: the others are inside the
// program's code, and may wait there for each other.
//
// Ranks may arrive at different times. While one has not arrived, or evaluates at another step, its own state
// is missing, and rank 0 commits nothing.
void Ranks::enter_evaluation() {
  const std::string name = partners_.next_evaluation();
  // Rank 0 cannot copy alone a state of which other ranks hold parts.
  const bool torn = engine_.boundary.disturbed() || !engine_.evaluation.why_torn().empty();
  if (run_.source.needs_others() || torn) return;
  if (!group_.leads()) return sender_.tell_boundary(name);
  if (engine_.saves.safe()) return;
  // A save in flight may fail, and its image then stands in for it. In one by all ranks each image is a part.
  if (engine_.saves.covered() && !engine_.saves.image_in_use()) return;
  engine_.evaluation.keep_boundary();
  engine_.listener.wake();
}

void Ranks::leave_evaluation(bool thrown_out) { engine_.evaluation.leave(thrown_out, true); }

void Ranks::leave() noexcept {
  group_.settle(SaveStatus::failed, "this rank ended before it learned the outcome");
  group_.patience().end_by(run_.clock.now() + kPartingGrace);
}

}}}  // namespace holdfast::v0_2::internal
