// Votes: what this rank tells the others at a boundary, and what all do with the result. Alone is a world of
// one.
#include <algorithm>
#include <utility>

#include "holdfast/planning/internal/planted.h"
#include "holdfast/planning/run_core.h"

namespace holdfast { inline namespace v0_2 { namespace run {
namespace {

// After a risk, intervals are halved for this long.
constexpr Duration kRiskLasts = std::chrono::minutes(30);
// Others dismiss an outlived end before rank 0 does (kAliveAfter), so rank 0 hears that the machine lives.
constexpr Duration kOutlivedHere = kAliveAfter - std::chrono::seconds(2);
constexpr Duration kAgreed = std::chrono::milliseconds(100);

}  // namespace

Vote merged(const Vote& a, const Vote& b) {
  return {.lowest = std::min(a.lowest, b.lowest),
          .highest = std::max(a.highest, b.highest),
          .save = std::max(a.save, b.save),
          .stop = std::max(a.stop, b.stop),
          .pause = std::max(a.pause, b.pause),
          .busy = std::max(a.busy, b.busy),
          .torn = std::max(a.torn, b.torn),
          .durable = std::max(a.durable, b.durable),
          .left = {.any = std::min(a.left.any, b.left.any),
                   .named = std::min(a.left.named, b.left.named),
                   .sleep = std::min(a.left.sleep, b.left.sleep)},
          .needs = std::max(a.needs, b.needs),
          .step_time = std::max(a.step_time, b.step_time),
          .due = std::max(a.due, b.due),
          .alone = a.alone || b.alone};
}

bool RunCore::votes_here() const {
  if (!alone()) return votes_.cadence.votes_at(step_);
  return ends_.pending() || must_stop() || wanted_ || schedule_.due(now_, step_);
}

void RunCore::vote_or_return() {
  if (planted(Planted::stops_without_a_vote) && must_stop()) stop_returned_ = leaving_ = true;
  if (stop_returned_ || !votes_here()) return give_back();
  take_requests();
  evaluation_.help_wanted = false;
  post(make_vote(false));
  if (alone()) {
    wait_ = Wait::vote;
  } else {
    give_back();
  }
}

void RunCore::take_requests() {
  if (ends_.take_save_request()) wanted_ = true;
  if (!ends_.take_risk()) return;
  wanted_ = true;
  schedule_.hurry_until(now_ + kRiskLasts);
}

void RunCore::post(const Vote& vote) {
  votes_.pending = true;
  votes_.posted = now_;
  votes_.result.reset();
  emit(PostVote{vote});
}

Vote RunCore::make_vote(bool at_end) {
  Vote vote{.lowest = step_, .highest = step_};
  const auto ask = [&](int& element, bool so) {
    if (so) element = options_.rank;
  };
  // The end of another rank's machine is that rank's to tell, and to withdraw.
  ask(vote.stop, at_end ? should_stop(true) : must_stop());
  ask(vote.torn, at_end && memory_is_torn());
  vote.left = ends_.own_left(now_);
  vote.step_time = costs().step;
  if (leads()) {
    vote_as_rank_0(vote, at_end);
  } else {
    ask(vote.save, !at_end && wanted_ && !paused_);
    ask(vote.busy, open_.has_value() && !votes_.agreed.alone && !planted(Planted::does_not_await_shares));
  }
  return vote;
}

void RunCore::vote_as_rank_0(Vote& vote, bool at_end) {
  const auto ask = [&](int& element, bool so) {
    if (so) element = options_.rank;
  };
  const Costs known = costs();
  vote.durable = durable_;
  if (known.commit) {
    const bool step_follows = !at_end || planted(Planted::counts_a_step_after_the_end);
    vote.needs = *known.commit +
                 (!alone() && step_follows ? known.step + known.agreement + kAgreed : Duration::zero());
  }
  if (at_end) return ask(vote.save, !covered() && !superseded_);
  const Plan plan = decide();
  // With several ranks, the save that is voted on now begins at the next step.
  const bool due = schedule_.due(now_, alone() ? step_ : step_ + 1);
  const bool last = plan.move == Move::last_commit && now_ >= retry_last_;
  const bool refused = wanted_ && plan.move == Move::train && !plan.room && !plan.too_late;
  if (refused && !std::exchange(told_no_room_, true)) say(Remark::no_room);
  vote.due = schedule_.next_due_step(now_).value_or(-1);
  ask(vote.save, plan.move == Move::commit || last || (!plan.pauses() && plan.room && (wanted_ || due)));
  ask(vote.stop, plan.move == Move::stop);
  ask(vote.pause, plan.pauses());
  const bool no_room = !plan.room && plan.move != Move::commit && !plan.pauses();
  // After a failure, until the next save has ended: the other ranks take rank 0's word for both.
  ask(vote.busy, image_.state != Image::free || no_room || (failing_ && in_flight_));
}

void RunCore::handle(const VoteResult& event) {
  if (votes_.pending) votes_.result = event.all;
}

void RunCore::learn(const Vote& all) {
  votes_.agreed = all;
  votes_.pending = false;
  votes_.result.reset();
  ++votes_.round;
  const bool end = all.left.any != kNoEnd || all.left.sleep != kNoEnd;
  if (!end && answer_.save > 0 && all.highest > newest_step_) answer_ = {};
  votes_.cadence.learn(all);
  if (alone()) return;
  // The end for which this rank stops is the reason that it records, also if it was withdrawn just now.
  const bool keeps = !must_stop() && stops_itself(all) && all.left.any == kNoEnd;
  if (!keeps) ends_.hear_others(all.left, votes_.posted, now_, options_.on_notice);
  if (leads()) return;
  durable_ = std::max(durable_, all.durable);
  if (!ends_.stop_requested()) ends_.dismiss(now_ - kOutlivedHere);
}

// The result of a vote is there: the same numbers on all ranks.
void RunCore::act() {
  learn(*votes_.result);
  const Vote& all = votes_.agreed;
  if (call_ == Call::finish) {
    if (all.stop >= 0) hear_stop();
    if (std::exchange(end_.voted, true)) return end_begins();
    post(make_vote(true));
    wait_ = Wait::vote;
    return;
  }
  take_requests();
  const bool saves = all.save >= 0 && all.busy < 0;
  if (leads() && all.save >= 0 && !saves && all.stop < 0 && !alone()) {
    const Plan plan = decide();
    const bool waits = plan.move == Move::train && !plan.room && !plan.too_late;
    if (waits && !std::exchange(told_no_room_, true)) say(Remark::no_room);
  }
  if (all.stop >= 0) return stop_together();
  if (all.pause >= 0) return pause_together(saves);
  if (end_pause()) say(Remark::going_on);
  saves ? save_together() : proceed();
}

// Such as for a hand-over to a standby, which the run's end has to tell.
bool RunCore::stops_itself(const Vote& all) const { return all.stop == options_.rank && should_stop(); }

// For good: what a source withdraws later changes nothing. Another rank's stop is this rank's, too.
void RunCore::hear_stop() {
  if (!alone() && !stops_itself(votes_.agreed) && !must_stop()) ends_.hear_stop(now_);
  leaving_ = true;
}

// This boundary is saved unless it is durable, or no save of it can end in time.
void RunCore::stop_together() {
  const Vote& all = votes_.agreed;
  end_pause();
  hear_stop();
  stop_returned_ = true;
  const bool needless = hopeless(all) || all.durable >= step_ || (alone() && covered());
  const bool refused = leads() && (covered() || decide().too_late ||
                                   (superseded_ && !planted(Planted::ignores_a_newer_attempt)));
  saved_here_ = !alone() && !needless;
  if (needless || refused) {
    decline();
    return proceed();
  }
  begin({.last = true, .asked = true, .blocking = true});
}

// All ranks pause together and vote continuously, so news on any rank ends the pause for all.
void RunCore::pause_together(bool saves) {
  if (!std::exchange(paused_, true)) say(Remark::pausing);
  const bool so =
      (votes_.agreed.durable >= step_ && !open_ && !in_flight_) || planted(Planted::approves_before_durable);
  if (so != approved_) {
    approved_ = so;
    emit(LetMachineGo{so});
  }
  if (!saves) return proceed();
  saved_here_ = !alone();
  // Another rank may have asked for a save that has just failed.
  if (leads() && (decide().move != Move::last_commit || now_ < retry_last_)) {
    decline();
    return proceed();
  }
  begin({.last = true, .asked = true});
}

// What a source lists later must not be approved by this pause.
bool RunCore::end_pause() {
  const bool approved = std::exchange(approved_, false);
  if (approved && !planted(Planted::leaves_the_machine_approved)) emit(LetMachineGo{false});
  return std::exchange(paused_, false);
}

void RunCore::save_together() {
  saved_here_ = !alone();  // the same on all ranks; the handle tells what became of it
  const Plan plan = leads() ? decide() : Plan{};
  // With several ranks the vote was cast a step ago. What was possible then may be forbidden now.
  const bool forbidden = plan.too_late || (!plan.room && plan.move != Move::commit);
  const bool refused = forbidden && !planted(Planted::begins_an_agreed_save_in_any_case);
  if (leads() && (covered() || refused)) {
    if (!covered()) {
      say(Remark::declined);
      wanted_ = true;
    }
    decline();
    return proceed();
  }
  const bool urgent = plan.move == Move::commit;
  Copy copy = options_.on_device ? Copy::by_device : Copy::whole;
  // A copy beside the step ends only at the next update, and an urgent save may not have that time.
  // Ranks that write shares of one file copy at once.
  if ((alone() || votes_.agreed.alone) && beside_step_works_ && update_announced_ && !urgent)
    copy = Copy::beside_step;
  begin({.asked = wanted_ || urgent, .copy = copy});
}

}}}  // namespace holdfast::v0_2::run
