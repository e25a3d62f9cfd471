// The loop and its end where several ranks train together: every rank casts a vote at each step boundary, and
// acts on what all votes of the boundary before came to (companions.h). Rank 0 has the claim and the plans;
// the others ask for saves and stops, pass on what they hear, and write their share or send what is their
// own.
#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <nlohmann/json.hpp>
#include <shared_mutex>
#include <thread>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/checkpoint/internal/checkpointer_state.h"

namespace holdfast::inline v1 {
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
    if (const auto largest = crew->companions.result(kLook)) {
      crew->pending = false;
      return agreed_by(*largest, crew->world_size());
    }
    watch->heard();
    Duration limit = crew->companions.timeout();
    std::optional<Duration> left = monitor.time_left();
    const auto told = crew->left(clock.now());
    if (told && (!left || *told < *left)) left = told;
    if (left) {
      // At the end, and in a pause, rank 0 may still copy the state or wait for its disk.
      const Duration there_was = *left + (clock.now() - began);
      const Duration worth = rank_0_may_save ? there_was : there_was / 10;
      limit = std::min(limit, std::max({worth, kShortestWait, 2 * costs.costs().step}));
    }
    const Duration waited = clock.now() - began;
    if (waited > limit) {
      crew->pending = false;
      crew->companions.give_up(what, waited);
    }
  }
}

void Checkpointer::State::agree(Decision& decision) {
  const SteadyTime now = clock.now();
  if (crew->leads()) {
    measure_step(now);
  } else {
    if (!std::exchange(step_is_no_measure, false)) costs.stepped(now - boundary_time);
    boundary_time = now;
  }
  if (!std::exchange(planned_with_slots, true)) plan_together();
  book->boundary(source.step());
  disturbed = false;

  std::optional<Agreed> agreed;
  if (crew->pending) agreed = await("the vote of a step boundary");
  if (agreed) learn(*agreed);
  if (monitor.pending()) watch->heard();
  take_requests();
  relax();
  // A stop that leaves no time for a save does not wait for what only a save needs.
  const bool hopeless = agreed && agreed->stop >= 0 && agreed->hopeless();
  if (agreed && !hopeless && (agreed->stop >= 0 || agreed->pause >= 0 || agreed->saves())) bring_together();
  const Plan plan = crew->leads() ? plan_now() : Plan{};
  if (agreed && agreed->stop >= 0) {
    stop_together(decision, *agreed);
  } else if (agreed && agreed->pause >= 0) {
    pause_together(decision, plan, *agreed);
  } else if (agreed && agreed->saves()) {
    save_together(decision, plan, *agreed);
  }
  if (!decision.stop) post(crew->leads() ? plan_now() : Plan{});
  if (crew->leads()) {
    if (writer->failing()) decision.failure = writer->failure();
  } else if (crew->failing) {
    decision.failure = "rank 0's last save failed; its log says why";
  }
}

// It waits for the other ranks: part of what a save costs.
void Checkpointer::State::bring_together() {
  const Waiting waiting(*this);
  source.bring_together();
  crew->brought_in = std::max(crew->brought_in, waiting.so_far());
}

void Checkpointer::State::plan_together() {
  bring_together();
  if (!crew->leads() && !crew->sharing) return;
  try {
    stager.plan_ahead();
    stager.make_image_ahead();
  } catch (const std::exception& error) {  // the first save will fail of it, and say it
    log_debug("the file could not be laid out: {}", what_of(error));
  }
}

// Rank 0 plans by the deadline that is told to any rank.
void Checkpointer::State::learn(const Agreed& agreed) {
  crew->learn(agreed);
  if (crew->end_has_moved(kSameTime)) limit_patience();
  if (crew->sharing) {
    try {
      stager.widen(static_cast<std::uint64_t>(agreed.capacity));
    } catch (const std::exception& error) {  // the next save will fail of it, and say it
      log_debug("the file could not be laid out: {}", what_of(error));
    }
  }
  if (!crew->leads()) {
    if (agreed.durable > started_from.step) started_from = {agreed.durable, {}, clock.now()};
    if (monitor.deadline() && !monitor.stop_requested()) monitor.dismiss(clock.now() - kOutlived);
    return;
  }
  if (agreed.stop >= 0) return;  // the stop says it
  const auto own = left_here();
  const auto left = crew->left(clock.now());
  if (left && (!own || *left + kSameTime < *own)) {
    const auto known = monitor.time_left();
    const bool too_early = crew->passed_on && known && *known + kSameTime < *left;
    if (known && !too_early && *known <= *left + kSameTime) return;
    if (too_early) {  // that rank had voted late
      monitor.post({.source = kOthers, .kind = NoticeKind::withdrawn, .text = "the end is not so near"});
    }
    crew->passed_on = true;
    monitor.post({.source = kOthers,
                  .kind = NoticeKind::deadline,
                  .deadline = clock.now() + *left,
                  .text = "the end of another rank's machine is announced"});
  } else if (std::exchange(crew->passed_on, false)) {
    monitor.post({.source = kOthers,
                  .kind = NoticeKind::withdrawn,
                  .text = "the end of another rank's machine is announced no more"});
  }
}

void Checkpointer::State::pass_on_stop(const Agreed& agreed) {
  if (!must_stop()) {
    monitor.post({.source = kOthers,
                  .kind = NoticeKind::stop,
                  .deadline = crew->end,
                  .text = "rank " + std::to_string(agreed.stop) + " was told to stop"});
  }
  leave();
}

void Checkpointer::State::stop_together(Decision& decision, const Agreed& agreed) {
  pass_on_stop(agreed);
  tell_stop(decision);
  if (agreed.hopeless()) {
    crew->hopeless = true;
    if (crew->leads()) say_too_late({.move = Move::stop, .too_late = !covered()});
    return;
  }
  if (agreed.durable >= source.step()) return;
  begin_round(agreed);
  if (crew->leads()) {
    save_boundary(decision, plan_now());
  } else {
    send_share(decision, true);
  }
  end_round(decision);
}

void Checkpointer::State::save_together(Decision& decision, const Plan& plan, const Agreed& agreed) {
  begin_round(agreed);
  if (crew->leads()) {
    save_wanted = true;
    save_boundary(decision, {.move = plan.move == Move::commit ? Move::commit : Move::train});
  } else {
    send_share(decision, false);
  }
  end_round(decision);
}

// In step with the others, a vote every moment: whoever has news ends it for all.
void Checkpointer::State::pause_together(Decision& decision, Plan plan, Agreed agreed) {
  const SteadyTime began = clock.now();
  const Duration waited = waited_since;
  crew->retry_at = began;
  log_info("pausing at step {} with all ranks until the machine goes away", source.step());
  if (crew->leads()) ledger.pause(source.step(), "the end is near");
  while (true) {
    watch->heard();
    if (crew->sharing && agreed.shares()) {
      // What all write, all have to have agreed on.
      if (agreed.saves() && agreed.durable < source.step()) {
        begin_round(agreed);
        crew->leads() ? save_boundary(decision, plan) : send_share(decision, true);
        end_round(decision);
        crew->retry_at = clock.now() + kSaveRetry;
      }
    } else if (!crew->leads()) {
      tell_own();
    } else if (plan.move == Move::last_commit && stager.ready() && clock.now() >= crew->retry_at) {
      save_boundary(decision, plan);
      crew->retry_at = clock.now() + kSaveRetry;
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
    clock.sleep_for(kPauseLook);
    if (crew->leads()) plan = plan_now();
  }
  waited_since = waited + (clock.now() - began);  // it is neither step nor save
  step_is_no_measure = true;
  if (decision.stop) return;
  if (crew->leads()) ledger.go_on(source.step(), "the machine stays");
  log_info("going on after a pause of {}", format_duration(clock.now() - began));
}

void Checkpointer::State::post(const Plan& plan) { post(vote(plan)); }

void Checkpointer::State::post(const Vote& vote) {
  crew->companions.post(ballot_of(vote, crew->rank(), crew->world_size()));
  crew->pending = true;
  crew->posted = clock.now();
}

Vote Checkpointer::State::vote(const Plan& plan) noexcept {
  Vote vote{.step = source.step(), .stop = must_stop()};
  try {
    vote.left = left_here();
  } catch (const std::bad_alloc&) {
    vote.left = crew->left(clock.now());
  }
  vote_on_plan(vote);
  // What another rank spoiled is made good at once.
  if (crew->leads() && crew->spoiled != writer->spoiled()) {
    crew->spoiled = writer->spoiled();
    save_wanted = true;
  }
  vote.save = save_wanted;
  if (!crew->leads()) return vote;
  bool due = policy.due(boundary_time, vote.step);
  if (due && policy.automatic()) {
    choose_interval();
    due = policy.due(boundary_time, vote.step);
  }
  const bool commit = plan.move == Move::commit && !probe_first(plan);
  const bool last = plan.move == Move::last_commit && clock.now() >= crew->retry_at;
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
  if (!crew->sharing) return;
  vote.plan = stager.mark();
  vote.capacity = static_cast<std::int64_t>(stager.attribute_capacity());
  if (!crew->leads()) {
    vote.busy = hand && !crew->alone && hand->busy();
    return;
  }
  vote.alone = writer->others_failed();
  vote.busy = !vote.alone && writer->writing_for().has_value();
}

// As plan_for_stop() will judge at the next boundary.
Duration Checkpointer::State::needed_for_last() const noexcept {
  const Costs known = costs_together();
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

// What own_text(step) says; empty: there is none.
std::string Checkpointer::State::own_now(std::int64_t step) {
  crew->own_failed = false;
  try {
    std::string own = internal::own_of(source);
    if (!own.empty()) own.insert(0, 1, internal::kOwnBytes);
    return own;
  } catch (const std::exception& error) {
    log_error("what is this rank's own at step {} could not be copied: {}", step, what_of(error));
    crew->own_failed = true;  // told again when it is asked for again
    return std::string(1, internal::kNoOwn) + what_of(error);
  }
}

// Once for each step. What it cannot tell fails this save alone.
void Checkpointer::State::tell_own() {
  const std::int64_t step = source.step();
  if (crew->told_own == step && !crew->own_failed) return;
  const std::string own = own_now(step);
  if (own.empty()) return;
  crew->companions.tell(internal::own_text(step), own);
  if (crew->told_own == step) return;
  // Rank 0 has begun another save since that one: it was heard, or never will be.
  if (crew->told_before >= 0) crew->companions.forget(internal::own_text(crew->told_before));
  crew->told_before = std::exchange(crew->told_own, step);
}

// The image has room for it behind what rank 0 copies: both may be filled at once.
std::function<void()> Checkpointer::State::bring_own_of_others(const Snapshot& snapshot) const {
  if (internal::own_bytes(source, snapshot.layout->tensors()) == 0) return {};
  return [&crew = *crew, &clock = clock, &source = source, layout = snapshot.layout, arena = snapshot.arena,
          step = snapshot.step] {
    for (int rank = 1; rank < crew.world_size(); ++rank) {
      const std::string own =
          hear_patiently(crew.guarded, clock, rank, internal::own_text(step), kOwnWait, &crew.patience);
      const std::shared_lock lock(crew.parting->mutex);
      if (crew.parting->parted) throw Error("the run has ended");
      const std::uint64_t bytes = internal::own_bytes(source, layout->tensors());
      if (!own.starts_with(internal::kOwnBytes)) {
        throw Error("rank " + std::to_string(rank) +
                    " could not copy its random numbers: " + own.substr(own.empty() ? 0 : 1));
      }
      if (own.size() - 1 != bytes) {
        throw Error("rank " + std::to_string(rank) + " has " + std::to_string(own.size() - 1) +
                    " bytes of its own where rank 0 has " + std::to_string(bytes) +
                    ": all ranks need as many random streams, of the same kinds");
      }
      std::size_t taken = 1;
      for (std::size_t i = 0; i < layout->tensors().size(); ++i) {
        const TensorSpec& tensor = layout->tensors()[i];
        if (tensor.name.starts_with(kRankGroup) || !source.own_of_rank(tensor)) continue;
        const auto slot =
            layout->slot(layout->find(internal::name_in_file(rank, tensor.name)).value(), arena->bytes());
        std::memcpy(slot.data(), own.data() + taken, slot.size());
        taken += slot.size();
      }
    }
  };
}

// All have left their loops, at the same step; whether it is an interruption is one answer for all.
void Checkpointer::State::part_together() {
  if (crew->pending) {
    const Agreed agreed = await("the vote of the last step", true);
    learn(agreed);
    if (agreed.stop >= 0) pass_on_stop(agreed);
    crew->hopeless = crew->hopeless || (agreed.stop >= 0 && agreed.hopeless());
  }
  // The same answer on all ranks.
  if (crew->durable < source.step() && !crew->hopeless) bring_together();
  if (!crew->leads()) tell_own();
  Vote vote{.step = source.step(), .stop = leaving || should_stop()};
  vote.left = left_here();
  vote_on_plan(vote);
  if (crew->leads()) {
    vote.durable = newest_durable();
    vote.needs = needed_for_last();
    vote.save = !covered() && !writer->superseded();
  }
  post(vote);
  const Agreed agreed = await("the end of the run", true);
  crew->learn(agreed);
  if (agreed.stop >= 0) pass_on_stop(agreed);
  crew->hopeless = crew->hopeless || (agreed.stop >= 0 && agreed.hopeless());
  if (agreed.save >= 0 && !crew->hopeless) begin_round(agreed);
}

void Checkpointer::State::tell_outcome() {
  crew->tell(internal::kOutcome, {{"code", end_code}, {"reason", end_reason}, {"durable", newest_durable()}});
}

void Checkpointer::State::hear_outcome() {
  const nlohmann::json outcome = crew->hear(0, internal::kOutcome, kOutcomeWait);
  end_code = outcome.value("code", static_cast<int>(ExitCode::internal));
  end_reason = outcome.value("reason", std::string());
  const std::int64_t durable = outcome.value("durable", std::int64_t{-1});
  if (durable > started_from.step) started_from = {durable, {}, clock.now()};
  crew->learn({.step = source.step(), .durable = durable});
  rest_hand(Duration::zero());
  crew->settle(SaveStatus::failed, "rank 0 could not write it: its log says why");
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
  crew->settle(SaveStatus::failed, "a rank was lost before rank 0 told what became of it");
  const bool interrupted = error.exit_code() == ExitCode::interrupted;
  end_code = interrupted ? options.exit_code_interrupted : static_cast<int>(error.exit_code());
  end_reason = text_or_out_of_memory([&] { return std::string(error.what()); });
  watch->end();
  if (writer) {
    drop_late();
    press();
    gave_up = !wait_for_writer();
    if (!gave_up) writer->stop();
  }
  phase = Phase::finished;
  book->close();
  if (writer && !gave_up)
    note_end(interrupted ? RunPhase::interrupted : RunPhase::failed, error.what(), end_code);
}

}  // namespace holdfast::inline v1
