#include "holdfast/checkpoint/internal/rank_votes.h"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

constexpr Duration kLook = std::chrono::milliseconds(50);  // how often a wait looks at own notices
// A wait for a vote may take a tenth of the time left, but always this long or two steps.
constexpr Duration kShortestWait = std::chrono::seconds(2);
// Others dismiss an outlived end before rank 0 does (kAliveAfter), so rank 0 hears that the machine lives.
constexpr Duration kOutlived = kAliveAfter - std::chrono::seconds(2);

}  // namespace

Agreed RankVotes::await(const char* what, bool rank_0_may_save) {
  const SteadyTime began = run_.clock.now();
  while (true) {
    if (const auto largest = group_.channel().result(kLook)) {
      pending_ = false;
      return agreed_by(*largest, group_.world_size());
    }
    engine_.listener.heard();
    Duration limit = group_.channel().timeout();
    std::optional<Duration> left;
    if (const auto end = run_.outlook.announced().earliest(RankEnds::kEnds))
      left = time_until(*end, run_.clock.now());
    const auto told = group_.left(run_.clock.now());
    if (told && (!left || *told < *left)) left = told;
    if (left) {
      // At the end, and in a pause, rank 0 may still copy the state or wait for its disk.
      const Duration there_was = *left + (run_.clock.now() - began);
      const Duration worth = rank_0_may_save ? there_was : there_was / 10;
      limit = std::min(limit, std::max({worth, kShortestWait, 2 * run_.costs.costs().step}));
    }
    const Duration waited = run_.clock.now() - began;
    if (waited > limit) {
      pending_ = false;
      group_.channel().give_up(what, waited);
    }
  }
}

void RankVotes::learn(const Agreed& agreed) {
  group_.learn(agreed);
  if (!agreed.left && !agreed.sleep_left) run_.outlook.forget_answer(agreed.step);
  engine_.saves.unsavable().refuse_for(agreed.unsavable);
  if (rounds_.end_has_moved(RankEnds::kSameTime)) rounds_.limit_patience();
  if (group_.sharing()) {
    try {
      run_.stager.widen(static_cast<std::uint64_t>(agreed.capacity));
    } catch (const std::exception& error) {  // the next save will fail for the same reason, and log it
      log_debug("the file could not be laid out: {}", what_of(error));
    }
  }
  if (group_.leads()) {
    ends_.hear_sleep(agreed);
    if (agreed.stop < 0) ends_.hear_end(agreed);  // a stop carries its own end
    return;
  }
  Durable& durable = run_.started.durable;
  if (agreed.durable > durable.step) durable = {agreed.durable, {}, run_.clock.now()};
  if (run_.monitor.deadline() && !run_.monitor.stop_requested()) {
    run_.monitor.dismiss(run_.clock.now() - kOutlived);
  }
}

void RankVotes::hear_stop(const Agreed& agreed) {
  const SteadyTime now = run_.clock.now();
  // Such as a hand-over to a standby, which the run's end has to tell.
  const bool own = agreed.stop == group_.rank() && !run_.outlook.reason().empty();
  if (!own && !run_.outlook.must_stop()) {
    // An end that has passed says nothing about the time left.
    const bool ahead = group_.end() && *group_.end() > now;
    const Notice stop{.source = RankEnds::kOthers,
                      .kind = NoticeKind::stop,
                      .deadline = ahead ? group_.end() : std::nullopt,
                      .text = "rank " + std::to_string(agreed.stop) + " was told to stop",
                      .guessed = !agreed.named_left,
                      .seen = now};
    run_.outlook.announced().others_stop(stop);
    ends_.tell_news(stop);
    engine_.listener.wake();  // it watches whether the program leaves its loop
  }
  run_.outlook.leave();
}

void RankVotes::post(const Vote& vote) {
  group_.post(vote, run_.clock.now());
  pending_ = true;
}

void RankVotes::post_last() {
  Vote vote{.step = run_.step(), .stop = run_.outlook.should_stop()};
  vote.torn = engine_.evaluation.unsure();
  vote.unsavable = engine_.saves.unsavable().known();
  ends_.put_in(vote);
  vote_on_plan(vote);
  if (group_.leads()) {
    vote.durable = run_.newest_durable();
    vote.needs = needed_for_last(false);
    vote.save = !engine_.saves.covered() && !run_.writer->superseded();
    // Rank 0 has all of the boundary; memory may have changed on each rank since.
    vote.alone = vote.alone || engine_.held.holds();
  }
  post(vote);
}

Vote RankVotes::vote(const Plan& plan) noexcept {
  Vote vote{.step = run_.step(), .stop = run_.outlook.must_stop()};
  vote.step_time = run_.costs.costs().step;
  vote.unsavable = engine_.saves.unsavable().known();
  ends_.put_in(vote);
  vote_on_plan(vote);
  // In a pause rank 0 plans the last save, and when it is tried again.
  vote.save = engine_.schedule.wanted() && !plan.pauses();
  if (group_.leads()) vote_as_rank_0(vote, plan);
  return vote;
}

void RankVotes::vote_as_rank_0(Vote& vote, const Plan& plan) noexcept {
  SaveSchedule& schedule = engine_.schedule;
  const AsyncWriter& writer = *run_.writer;
  // A save that failed because of another rank is made again at once.
  const std::uint64_t spoiled = writer.saves_failed_by_other_ranks();
  if (std::exchange(spoiled_, spoiled) != spoiled) schedule.want();
  // The save that is voted on now begins at the next step.
  const SteadyTime boundary = run_.time.boundary();
  bool due = schedule.due(boundary, vote.step + 1);
  if (due && schedule.choose_interval()) due = schedule.due(boundary, vote.step + 1);
  vote.due = schedule.next_due_step(boundary).value_or(-1);
  const bool commit = plan.move == Move::commit;
  const bool last = plan.move == Move::last_commit && run_.clock.now() >= retry_at_;
  vote.save = commit || last || (!plan.pauses() && plan.room && (schedule.wanted() || due));
  vote.stop = vote.stop || plan.move == Move::stop;
  vote.pause = plan.pauses();
  // No save begins that cannot end in time, whichever rank asks.
  vote.busy =
      vote.busy || engine_.late.open() || !run_.stager.ready() || (!plan.room && !commit && !vote.pause);
  vote.failing = writer.failing();
  vote.busy = vote.busy || (vote.failing && writer.writing_for());  // until its outcome is known
  vote.durable = run_.newest_durable();
  vote.needs = needed_for_last(true);
}

// A rank that still writes its share is busy, so no save begins. Once rank 0 writes alone, a share that hangs
// in its rank's disk no longer counts, and with two images rank 0 may stage the next save meanwhile.
void RankVotes::vote_on_plan(Vote& vote) const noexcept {
  if (!group_.sharing()) return;
  vote.plan = run_.stager.mark();
  vote.capacity = static_cast<std::int64_t>(run_.stager.attribute_capacity());
  if (!group_.leads()) {
    vote.busy = !group_.alone() && sender_.busy();
    return;
  }
  vote.alone = run_.writer->others_failed();
  vote.busy = !vote.alone && run_.writer->writing_for().has_value();
}

// The sum by which plan_for_stop() judges where all act on the vote: at the next boundary, or at once.
Duration RankVotes::needed_for_last(bool step_follows) const noexcept {
  const Costs known = run_.outlook.costs();
  if (!known.commit || run_.newest_durable() < 0) return Duration::zero();
  return *known.commit + (step_follows ? known.agreement : Duration::zero());
}

}}}  // namespace holdfast::v0_2::internal
