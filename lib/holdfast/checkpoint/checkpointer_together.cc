// The loop and its end where several ranks train together: about once a second every rank casts a vote at the
// same step boundary (vote_cadence.h), and acts at the next one on what all votes came to (rank_channel.h).
// Other boundaries do as little as those of a single process. Rank 0 has the claim and the plans;
// the others ask for saves and stops, pass on what they hear, and write their share or send what is their
// own.
#include <algorithm>
#include <exception>
#include <new>
#include <nlohmann/json.hpp>
#include <shared_mutex>
#include <string_view>
#include <thread>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/checkpoint/internal/checkpointer_state.h"

namespace holdfast { inline namespace v1 {
namespace {

constexpr Duration kLook = std::chrono::milliseconds(50);  // between two looks at this rank's own notices
constexpr Duration kPauseLook = std::chrono::milliseconds(100);
constexpr Duration kSaveRetry = std::chrono::seconds(2);
// A partner's answer is worth a tenth of the time that is left, and never less than this or two steps.
constexpr Duration kShortestWait = std::chrono::seconds(2);
// What is a rank's own is told at the same boundary: it is a step away at most.
constexpr Duration kOwnWait = std::chrono::seconds(30);
// Rank 0 commits, however slow its disk; that it has died or hangs is noticed by the store.
constexpr Duration kOutcomeWait = std::chrono::hours(1);
// The same notice, told by a rank at two boundaries, differs by the clocks' ticks.
constexpr Duration kSameTime = std::chrono::seconds(1);
// Rank 0 hears that a machine lives before its own plans would say so (kAliveAfter).
constexpr Duration kOutlived = kAliveAfter - std::chrono::seconds(2);
constexpr char kOthers[] = "another rank";  // the source of notices that were passed on

}  // namespace

// Requires that a ballot is pending.
Agreed Checkpointer::State::await(const char* what, bool rank_0_may_save) {
  const SteadyTime began = clock.now();
  while (true) {
    if (const auto largest = ranks->channel.result(kLook)) {
      ranks->pending = false;
      return agreed_by(*largest, ranks->world_size());
    }
    watch->heard();
    Duration limit = ranks->channel.timeout();
    std::optional<Duration> left = monitor.time_left();
    const auto told = ranks->left(clock.now());
    if (told && (!left || *told < *left)) left = told;
    if (left) {
      // At the end, and in a pause, rank 0 may still copy the state or wait for its disk.
      const Duration there_was = *left + (clock.now() - began);
      const Duration worth = rank_0_may_save ? there_was : there_was / 10;
      limit = std::min(limit, std::max({worth, kShortestWait, 2 * costs.costs().step}));
    }
    const Duration waited = clock.now() - began;
    if (waited > limit) {
      ranks->pending = false;
      ranks->channel.give_up(what, waited);
    }
  }
}

void Checkpointer::State::agree(Decision& decision) {
  const std::int64_t step = source.step();
  time.step(clock.now(), writer ? writer->activity() : 0);
  if (!std::exchange(planned_with_slots, true)) plan_together();
  book->boundary(step);
  if (monitor.pending()) watch->heard();

  if (ranks->pending) {
    const Agreed agreed = await("the vote of a step boundary");
    ranks->cadence.learn(agreed);
    learn(agreed);
    act_together(decision, agreed);
  }
  if (!decision.stop && ranks->cadence.votes_at(step)) {
    take_requests();
    // A notice that comes between these two calls for itself.
    ranks->channel.call(false);
    if (monitor.pending()) ranks->channel.call(true);
    restore_limit();
    post(ranks->leads() ? plan_now() : Plan{});
  }
  if (ranks->leads()) {
    if (writer->failing()) decision.failure = writer->failure();
  } else if (ranks->failing) {
    decision.failure = "rank 0's last save failed; its log says why";
  }
}

void Checkpointer::State::act_together(Decision& decision, const Agreed& agreed) {
  take_requests();
  restore_limit();
  // A stop that leaves no time for a save does not wait for what only a save needs.
  const bool stops = agreed.stop >= 0;
  const bool saves = agreed.pause >= 0 || agreed.saves();
  if (stops ? !agreed.hopeless() : saves) bring_together();
  const Plan plan = ranks->leads() ? plan_now() : Plan{};
  if (stops) {
    stop_together(decision, agreed);
  } else if (agreed.pause >= 0) {
    pause_together(decision, plan, agreed);
  } else if (saves) {
    save_together(decision, plan, agreed);
  }
}

// It waits for the other ranks: part of what a save costs.
void Checkpointer::State::bring_together() {
  const Waiting waiting(time);
  source.bring_together();
  outlook.add_agreement(waiting.so_far());
}

void Checkpointer::State::plan_together() {
  bring_together();
  if (!ranks->leads() && !ranks->sharing) return;
  try {
    stager.plan_ahead();
    stager.make_image_ahead();
  } catch (const std::exception& error) {  // the first save will fail of it, and say it
    log_debug("the file could not be laid out: {}", what_of(error));
  }
}

// Rank 0 plans by the deadline that is told to any rank.
void Checkpointer::State::learn(const Agreed& agreed) {
  ranks->learn(agreed);
  if (!agreed.left) outlook.forget_answer(agreed.step);
  if (ranks->end_has_moved(kSameTime)) limit_patience();
  if (ranks->sharing) {
    try {
      stager.widen(static_cast<std::uint64_t>(agreed.capacity));
    } catch (const std::exception& error) {  // the next save will fail of it, and say it
      log_debug("the file could not be laid out: {}", what_of(error));
    }
  }
  if (!ranks->leads()) {
    if (agreed.durable > started.durable.step) started.durable = {agreed.durable, {}, clock.now()};
    if (monitor.deadline() && !monitor.stop_requested()) monitor.dismiss(clock.now() - kOutlived);
    return;
  }
  if (agreed.stop >= 0) return;  // the stop says it
  const auto own = left_here();
  const auto left = ranks->left(clock.now());
  if (left && (!own || *left + kSameTime < *own)) {
    const auto known = monitor.time_left();
    const bool too_early = ranks->passed_on && known && *known + kSameTime < *left;
    if (known && !too_early && *known <= *left + kSameTime) return;
    if (too_early) {  // that rank had voted late
      monitor.post({.source = kOthers, .kind = NoticeKind::withdrawn, .text = "the end is not so near"});
    }
    ranks->passed_on = true;
    monitor.post({.source = kOthers,
                  .kind = NoticeKind::deadline,
                  .deadline = clock.now() + *left,
                  .text = "the end of another rank's machine is announced",
                  .guessed = !agreed.named_left});
  } else if (std::exchange(ranks->passed_on, false)) {
    monitor.post({.source = kOthers,
                  .kind = NoticeKind::withdrawn,
                  .text = "the end of another rank's machine is announced no more"});
  }
}

void Checkpointer::State::pass_on_stop(const Agreed& agreed) {
  if (!outlook.must_stop()) {
    monitor.post({.source = kOthers,
                  .kind = NoticeKind::stop,
                  .deadline = ranks->end,
                  .text = "rank " + std::to_string(agreed.stop) + " was told to stop",
                  .guessed = !agreed.named_left});
  }
  outlook.leave();
}

void Checkpointer::State::stop_together(Decision& decision, const Agreed& agreed) {
  pass_on_stop(agreed);
  tell_stop(decision);
  if (agreed.hopeless()) {
    ranks->hopeless = true;
    if (ranks->leads() && !covered()) outlook.warn_too_late(reached());
    return;
  }
  if (agreed.durable >= source.step()) return;
  begin_round(agreed);
  if (ranks->leads()) {
    save_boundary(decision, plan_now());
  } else {
    send_share(decision, true);
  }
  end_round(decision);
}

void Checkpointer::State::save_together(Decision& decision, const Plan& plan, const Agreed& agreed) {
  begin_round(agreed);
  if (ranks->leads()) {
    save_wanted = true;
    save_boundary(decision, {.move = plan.move == Move::commit ? Move::commit : Move::train});
  } else {
    send_share(decision, false);
  }
  end_round(decision);
}

// In step with the others, a vote every moment: whoever has news ends it for all.
void Checkpointer::State::pause_together(Decision& decision, Plan plan, Agreed agreed) {
  const internal::TrainingTime::Pause paused(time);
  ranks->retry_at = paused.began();
  log_info("pausing at step {} with all ranks until the machine goes away", source.step());
  if (ranks->leads()) ledger.pause(source.step(), "the end is near");
  while (true) {
    watch->heard();
    if (ranks->sharing && agreed.shares()) {
      // What all write, all have to have agreed on.
      if (agreed.saves() && agreed.durable < source.step()) {
        begin_round(agreed);
        ranks->leads() ? save_boundary(decision, plan) : send_share(decision, true);
        end_round(decision);
        ranks->retry_at = clock.now() + kSaveRetry;
      }
    } else if (!ranks->leads()) {
      tell_own();
    } else if (plan.move == Move::last_commit && stager.ready() && clock.now() >= ranks->retry_at) {
      save_boundary(decision, plan);
      ranks->retry_at = clock.now() + kSaveRetry;
    }
    post(plan);
    agreed = await("a vote in the pause", true);
    learn(agreed);
    take_requests();
    if (agreed.stop >= 0) {
      stop_together(decision, agreed);
      break;
    }
    if (agreed.pause < 0) break;
    may_go = agreed.durable >= source.step();
    clock.sleep_for(kPauseLook);
    if (ranks->leads()) plan = plan_now();
  }
  may_go = false;
  if (decision.stop) return;
  if (ranks->leads()) ledger.go_on(source.step(), "the machine stays");
  log_info("going on after a pause of {}", format_duration(paused.so_far()));
}

void Checkpointer::State::post(const Plan& plan) { post(vote(plan)); }

void Checkpointer::State::post(const Vote& vote) {
  ranks->channel.post(ballot_of(vote, ranks->rank(), ranks->world_size()));
  ranks->pending = true;
  ranks->posted = clock.now();
}

Vote Checkpointer::State::vote(const Plan& plan) noexcept {
  Vote vote{.step = source.step(), .stop = outlook.must_stop()};
  vote.step_time = costs.costs().step;
  try {
    vote.left = left_here();
  } catch (const std::bad_alloc&) {
    vote.left = ranks->left(clock.now());
  }
  vote.named_left = named_left_here();
  vote_on_plan(vote);
  // What another rank spoiled is made good at once.
  if (ranks->leads() && ranks->spoiled != writer->spoiled()) {
    ranks->spoiled = writer->spoiled();
    save_wanted = true;
  }
  vote.save = save_wanted;
  if (!ranks->leads()) return vote;
  // The save that is voted on now begins at the next step.
  bool due = policy.due(time.boundary(), vote.step + 1);
  if (due && policy.automatic()) {
    choose_interval();
    due = policy.due(time.boundary(), vote.step + 1);
  }
  vote.due = policy.next_due_step(time.boundary()).value_or(-1);
  const bool commit = plan.move == Move::commit;
  const bool last = plan.move == Move::last_commit && clock.now() >= ranks->retry_at;
  vote.save = commit || last || (plan.room && (save_wanted || due));
  vote.stop = vote.stop || plan.move == Move::stop;
  vote.pause = plan.move == Move::last_commit || plan.move == Move::wait;
  // Where a save cannot end in time none begins, whoever wants it.
  vote.busy = vote.busy || late_save != nullptr || !stager.ready() || (!plan.room && !commit && !vote.pause);
  vote.failing = writer->failing();
  vote.busy = vote.busy || (vote.failing && writer->writing_for());  // whether it still does will be known
  vote.durable = newest_durable();
  vote.needs = needed_for_last();
  return vote;
}

// Whoever still writes its share of a checkpoint is busy; but a share that hangs in its rank's disk keeps
// nobody from saving once rank 0 writes alone. With two images, rank 0 may stage another meanwhile only then.
void Checkpointer::State::vote_on_plan(Vote& vote) const noexcept {
  if (!ranks->sharing) return;
  vote.plan = stager.mark();
  vote.capacity = static_cast<std::int64_t>(stager.attribute_capacity());
  if (!ranks->leads()) {
    vote.busy = hand && !ranks->alone && hand->busy();
    return;
  }
  vote.alone = writer->others_failed();
  vote.busy = !vote.alone && writer->writing_for().has_value();
}

// As plan_for_stop() will judge at the next boundary.
Duration Checkpointer::State::needed_for_last() const noexcept {
  const Costs known = outlook.costs();
  if (!known.commit || newest_durable() < 0) return Duration::zero();
  return *known.commit + known.agreement;
}

// Without what others have told: that would keep itself alive.
std::optional<Duration> Checkpointer::State::left_here() const {
  if (monitor.stop_requested()) return monitor.time_left();
  const auto notice = monitor.standing();
  if (!notice || notice->source == kOthers) return std::nullopt;
  return std::max(Duration(*notice->deadline - clock.now()), Duration::zero());
}

// The same of an end that somebody named: what time is left by a guess, forbids nothing.
std::optional<Duration> Checkpointer::State::named_left_here() const {
  const auto named = monitor.named_deadline();
  if (!named || !left_here()) return std::nullopt;
  return std::max(Duration(*named - clock.now()), Duration::zero());
}

// What own_text(step) says; empty: there is none.
std::string Checkpointer::State::own_now(std::int64_t step) {
  ranks->own_failed = false;
  try {
    std::string own = internal::own_of(source);
    if (!own.empty()) own.insert(0, 1, internal::kOwnBytes);
    return own;
  } catch (const std::exception& error) {
    log_error("what is this rank's own at step {} could not be copied: {}", step, what_of(error));
    ranks->own_failed = true;  // told again when it is asked for again
    return std::string(1, internal::kNoOwn) + what_of(error);
  }
}

// Once for each step. What it cannot tell fails this save alone.
void Checkpointer::State::tell_own() {
  const std::int64_t step = source.step();
  if (ranks->told_own == step && !ranks->own_failed) return;
  const std::string own = own_now(step);
  if (own.empty()) return;
  ranks->channel.tell(internal::own_text(step), own);
  if (ranks->told_own == step) return;
  // Rank 0 has begun another save since that one: it was heard, or never will be.
  if (ranks->told_before >= 0) ranks->channel.forget(internal::own_text(ranks->told_before));
  ranks->told_before = std::exchange(ranks->told_own, step);
}

// The image has room for it behind what rank 0 copies: both may be filled at once.
std::function<void()> Checkpointer::State::bring_own_of_others(const Snapshot& snapshot) const {
  if (internal::own_bytes(source, snapshot.layout->tensors()) == 0) return {};
  return [&ranks = *ranks, &clock = clock, &source = source, layout = snapshot.layout, arena = snapshot.arena,
          step = snapshot.step] {
    for (int rank = 1; rank < ranks.world_size(); ++rank) {
      const std::string own =
          hear_patiently(ranks.guarded, clock, rank, internal::own_text(step), kOwnWait, &ranks.patience);
      const std::shared_lock lock(ranks.parting->mutex);
      if (ranks.parting->parted) throw Error("the run has ended");
      if (!own.starts_with(internal::kOwnBytes)) {
        throw Error("rank " + std::to_string(rank) +
                    " could not copy its random numbers: " + own.substr(own.empty() ? 0 : 1));
      }
      internal::put_own_of(rank, std::string_view(own).substr(1), source, *layout, arena->bytes());
    }
  };
}

// All have left their loops, at the same step; whether it is an interruption is one answer for all.
void Checkpointer::State::part_together() {
  clear_shelf();
  boundary = {};
  if (ranks->pending) {
    const Agreed agreed = await("the vote of the last step", true);
    learn(agreed);
    if (agreed.stop >= 0) pass_on_stop(agreed);
    ranks->hopeless = ranks->hopeless || (agreed.stop >= 0 && agreed.hopeless());
  }
  // The same answer on all ranks.
  if (ranks->durable < source.step() && !ranks->hopeless) bring_together();
  if (!ranks->leads()) tell_own();
  Vote vote{.step = source.step(), .stop = outlook.should_stop()};
  vote.torn = update_open || disturbed || evaluating;
  vote.left = left_here();
  vote.named_left = named_left_here();
  vote_on_plan(vote);
  if (ranks->leads()) {
    vote.durable = newest_durable();
    vote.needs = needed_for_last();
    vote.save = !covered() && !writer->superseded();
  }
  post(vote);
  const Agreed agreed = await("the end of the run", true);
  ranks->learn(agreed);
  if (agreed.stop >= 0) pass_on_stop(agreed);
  ranks->hopeless = ranks->hopeless || (agreed.stop >= 0 && agreed.hopeless());
  ranks->torn = agreed.torn;
  if (agreed.save >= 0 && agreed.torn < 0 && !ranks->hopeless) begin_round(agreed);
}

void Checkpointer::State::tell_outcome() {
  ranks->tell(internal::kOutcome,
              {{"code", end_code}, {"reason", end_reason}, {"durable", newest_durable()}});
}

void Checkpointer::State::hear_outcome() {
  const nlohmann::json outcome = ranks->hear(0, internal::kOutcome, kOutcomeWait);
  end_code = outcome.value("code", static_cast<int>(ExitCode::internal));
  end_reason = outcome.value("reason", std::string());
  const std::int64_t durable = outcome.value("durable", std::int64_t{-1});
  if (durable > started.durable.step) started.durable = {durable, {}, clock.now()};
  ranks->learn({.step = source.step(), .durable = durable});
  rest_hand(Duration::zero());
  ranks->settle(SaveStatus::failed, "rank 0 could not write it: its log says why");
  watch->end();
  phase = Phase::finished;
  book->close();
}

void Checkpointer::State::or_abandon(const std::function<void()>& work) {
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

// The run cannot go on: a rank is lost, or they contradict each other. What is staged is still written, for
// as long as a deadline leaves.
void Checkpointer::State::abandon(const Error& error) noexcept {
  if (phase == Phase::finished) return;
  rest_hand(internal::kPartingGrace);
  ranks->settle(SaveStatus::failed, "a rank was lost before rank 0 told what became of it");
  const bool interrupted = error.exit_code() == ExitCode::interrupted;
  end_code = interrupted ? options.notices.exit_code_interrupted : static_cast<int>(error.exit_code());
  end_reason = text_or_out_of_memory([&] { return std::string(error.what()); });
  watch->end();
  if (writer) {
    drop_late();
    lift_limit();
    gave_up = !wait_for_writer();
    if (!gave_up) writer->stop();
  }
  phase = Phase::finished;
  book->close();
  if (writer && !gave_up)
    note_end(interrupted ? RunPhase::interrupted : RunPhase::failed, error.what(), end_code);
}

}}  // namespace holdfast::v1
