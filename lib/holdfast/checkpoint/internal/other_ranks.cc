#include "holdfast/checkpoint/internal/other_ranks.h"

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>
#include <string_view>
#include <thread>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/ranks/ranked_state.h"
#include "holdfast/ranks/shared_volume.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

constexpr Duration kLook = std::chrono::milliseconds(50);  // how often a wait looks at own notices
// A wait for a vote may take a tenth of the time left, but always this long or two steps.
constexpr Duration kShortestWait = std::chrono::seconds(2);
// Two votes about the same end may differ by less than this, because clocks tick.
constexpr Duration kSameEnd = std::chrono::seconds(1);
// A guess may be wrong by this much, as RunCore's waits see it.
constexpr Duration kBeyondGuess = std::chrono::minutes(5);
// Ranks send their own state at the same boundary, so it is at most a step away.
constexpr Duration kOwnWait = std::chrono::seconds(30);
// Rank 0 commits, however slow its disk; that it has died or hangs is noticed by the store.
constexpr Duration kOutcomeWait = std::chrono::hours(1);
// What a thread of this rank still has to do after a share is written.
constexpr Duration kRest = std::chrono::seconds(5);
// Rank 0 may still be in an earlier evaluation.
constexpr std::size_t kStillWanted = 2;

bool differ(std::optional<SteadyTime> one, std::optional<SteadyTime> other) {
  if (!one || !other) return one.has_value() != other.has_value();
  return std::max(*one - *other, *other - *one) > kSameEnd;
}

std::optional<Duration> told_left(Duration left) {
  return left == run::kNoEnd ? std::nullopt : std::optional(left);
}

}  // namespace

OtherRanks::OtherRanks(Run& run, RankGroup* group) : run_(run), group_(group) {
  if (alone()) return;
  run_.book->count_in(group_->channel().saves_in_flight());
  if (leads()) run_.verifier.share_images();
  told_boundaries_.reserve(kStillWanted + 1);
}

void OtherRanks::begin_sharing(bool wanted) {
  group_->begin_sharing(run_.started.record.attempt, run_.clock);
  if (!wanted) return;
  SharedVolume volume = find_shared_volume(run_.file_system, run_.options.directory,
                                           run_.started.record.attempt, group_->channel(), run_.clock);
  const auto others = std::count(volume.sees.begin() + 1, volume.sees.end(), true);
  group_->determine_volume(volume.sees);
  if (leads()) {
    for (std::size_t rank = 1; rank < volume.sees.size(); ++rank) {
      if (volume.sees[rank]) continue;
      log_info("rank {} does not see {}, and gets the state from rank 0: {}", static_cast<int>(rank),
               run_.options.directory, volume.reasons[rank]);
    }
  }
  if (!group_->sharing()) return;
  if (leads()) log_info("{} of {} ranks write each checkpoint", others + 1, group_->world_size());
  run_.stager.divide_among(group_->rank(), std::move(volume.sees));
  if (leads()) return;
  writer_ = std::make_unique<ShareWriterThread>(group_->shared(), group_->guarded(), run_.file_system,
                                                run_.options.directory, run_.clock);
}

// Votes.

void OtherRanks::post(const run::Vote& vote, bool at_end, bool holds_image) {
  asked_since_ = run_.clock.now();
  if (alone()) {
    own_vote_ = vote;
    return;
  }
  Vote mine{.step = vote.lowest,
            .save = vote.save >= 0,
            .stop = vote.stop >= 0,
            .pause = vote.pause >= 0,
            .busy = vote.busy >= 0,
            .durable = vote.durable,
            .left = told_left(vote.left.any),
            .needs = vote.needs,
            .named_left = told_left(vote.left.named),
            .sleep_left = told_left(vote.left.sleep),
            .torn = vote.torn >= 0,
            .unsavable = run_.unsavable.known(),
            .step_time = vote.step_time,
            .due = vote.due};
  if (leads()) {
    // At the end a save may still be written, and the outcome tells of it.
    mine.failing = !at_end && run_.writer->failing();
    // Rank 0 has all of the boundary; memory may have changed on each rank since.
    mine.alone = at_end && holds_image;
  }
  if (sharing()) {
    const SourceTraits traits = run_.source.traits();
    // A file that was laid out for other tensors is one that no rank could share.
    if (!at_end && traits.may_change_form && !traits.needs_others) {
      try {
        run_.stager.plan_ahead();
      } catch (const std::exception& error) {  // the next save will fail for the same reason, and log it
        log_debug("the file could not be laid out: {}", what_of(error));
      }
    }
    mine.plan = run_.stager.mark();
    mine.capacity = static_cast<std::int64_t>(run_.stager.attribute_capacity());
    if (leads()) {
      mine.alone = mine.alone || run_.writer->others_failed();
    } else {
      // A share that hangs in this rank's disk does not count, once rank 0 writes alone.
      mine.busy = mine.busy && !group_->alone();
    }
  }
  // Before rank 0 learns that all are here, and looks for it.
  if (at_end && !leads() && own_failed_) tell_own();
  group_->post(mine, run_.clock.now());
}

std::optional<run::Vote> OtherRanks::result(std::optional<Duration> left, At at) {
  if (alone()) return std::exchange(own_vote_, std::nullopt);
  const auto largest = group_->channel().result(kLook);
  if (!largest) {
    Duration limit = group_->channel().timeout();
    const auto told = group_->left(run_.clock.now());
    if (told && (!left || *told < *left)) left = told;
    const Duration waited = run_.clock.now() - asked_since_;
    if (left) {
      // At the end, and in a pause, rank 0 may still copy the state or wait for its disk.
      const Duration there_was = *left + waited;
      const Duration worth = at != At::boundary ? there_was : there_was / 10;
      limit = std::min(limit, std::max({worth, kShortestWait, 2 * run_.costs.costs().step}));
    }
    if (waited > limit) {
      const char* const what = at == At::end             ? "the end of the run"
                               : at == At::pause         ? "a vote in the pause"
                               : at == At::last_boundary ? "the vote of the last step"
                                                         : "the vote of a step boundary";
      group_->channel().give_up(what, waited);
    }
    return std::nullopt;
  }
  const Agreed agreed = agreed_by(*largest, group_->world_size());
  ++round_;
  learn(agreed);
  if (stop_ < 0) stop_ = agreed.stop;  // the first one: then all ranks ask for it
  torn_ = agreed.torn;
  run::Vote vote{.lowest = agreed.step,
                 .highest = agreed.step,
                 .save = agreed.save,
                 .stop = agreed.stop,
                 .pause = agreed.pause,
                 .busy = agreed.busy,
                 .torn = agreed.torn,
                 .durable = agreed.durable,
                 .left = {.any = agreed.left.value_or(run::kNoEnd),
                          .named = agreed.named_left.value_or(run::kNoEnd),
                          .sleep = agreed.sleep_left.value_or(run::kNoEnd)},
                 .needs = agreed.needs,
                 .step_time = agreed.step_time,
                 .due = agreed.due,
                 .alone = !(sharing() && agreed.shares())};
  plan_ = vote.alone ? 0 : agreed.plan;
  const bool hopeless = agreed.stop >= 0 && agreed.hopeless();
  const bool over = hopeless || agreed.durable >= run_.step();
  if (at == At::last_boundary) return vote;  // the vote of the end decides
  const bool at_end = at == At::end;
  const bool saves = at_end             ? agreed.save >= 0 && agreed.torn < 0 && !over
                     : agreed.stop >= 0 ? !over
                                        : agreed.saves();
  // A stop without time for a save does not wait for texts that only a save needs.
  const bool gathers = at_end             ? agreed.torn < 0 && !over
                       : agreed.stop >= 0 ? !hopeless
                                          : saves || agreed.pause >= 0;
  if (saves && plan_ != 0) ++shared_saves_;
  if (leads() && saves && plan_ != 0) {
    const MutexLock lock(mutex_);
    const auto place =
        std::find_if(debts_.begin(), debts_.end(), [](const Debt& debt) { return debt.round == 0; });
    if (place != debts_.end()) *place = {.round = round_, .step = run_.step()};
  }
  if (saves || agreed.pause >= 0) limit_patience();
  if (gathers) gather();
  // Now: before, the own state of a rank may lie on others.
  if (!leads() && (at_end ? gathers : agreed.pause >= 0 && vote.alone)) tell_own();
  return vote;
}

void OtherRanks::learn(const Agreed& agreed) {
  group_->learn(agreed);
  run_.unsavable.refuse_for(agreed.unsavable);
  if (differ(group_->end(), patient_until_.any) || differ(group_->named_end(), patient_until_.named)) {
    limit_patience();
  }
  if (sharing()) {
    try {
      run_.stager.widen(static_cast<std::uint64_t>(agreed.capacity));
    } catch (const std::exception& error) {  // the next save will fail for the same reason, and log it
      log_debug("the file could not be laid out: {}", what_of(error));
    }
  }
  Durable& durable = run_.started.durable;
  if (!leads() && agreed.durable > durable.step) durable = {agreed.durable, {}, run_.clock.now()};
}

// The wait for the others is part of the save's cost.
void OtherRanks::gather() {
  const Waiting waiting(run_.time);
  run_.source.bring_together();
  agreement_ = std::max(agreement(), waiting.so_far()).count();
}

bool OtherRanks::save_was_spoiled() {
  if (alone() || !leads()) return false;
  const std::uint64_t now = run_.writer->saves_failed_by_other_ranks();
  return std::exchange(spoiled_, now) != now;
}

bool OtherRanks::owes(int round) const noexcept {
  const MutexLock lock(mutex_);
  return std::any_of(debts_.begin(), debts_.end(), [&](const Debt& debt) { return debt.round == round; });
}

std::optional<std::int64_t> OtherRanks::pay(int round) noexcept {
  const MutexLock lock(mutex_);
  for (Debt& debt : debts_) {
    if (debt.round != round || round <= 0) continue;
    debt.round = 0;
    return debt.step;
  }
  return std::nullopt;
}

// Before an announced end, rank 0 stops waiting for the others early enough to write a save alone, but not
// before the shared save could have ended. If there is no time for both, it waits until the end. The other
// ranks always wait for rank 0.
// An end that has passed says nothing about the time left, and a guess forbids no save.
void OtherRanks::limit_patience() noexcept {
  patient_until_ = {group_->end(), group_->named_end()};
  const SteadyTime now = run_.clock.now();
  const auto ahead = [&](std::optional<SteadyTime> end) { return end && *end > now ? end : std::nullopt; };
  const auto named = ahead(patient_until_.named);
  const auto first = ahead(patient_until_.any) ? patient_until_.any : named;
  if (!first) return group_->patience().renew();
  SteadyTime until = named ? *named : *first + kBeyondGuess;
  const Costs known = run_.costs.costs();
  if (leads() && sharing() && !group_->alone() && (known.commit || first == named)) {
    const Duration left = *first - now;
    // Without known costs, a third of the time for each.
    const Duration together = known.commit.value_or(left / 3);
    const Duration by_itself = known.commit ? *known.commit * group_->world_size() : left / 3;
    const Duration agreed = known.step + agreement();
    if (left >= together + by_itself + agreed) until = *first - by_itself - agreed;
  }
  group_->patience().end_by(until);
}

SharedWriteOptions OtherRanks::limits() const {
  const WritingOptions& writing = run_.options.writing;
  // The limit is the volume's, and all ranks write to it.
  SharedWriteOptions limits{
      .how = {.threads = writing.threads,
              .write_limit = writing.write_limit / group_->world_size(),
              .clock = &run_.clock,
              .limit_lifted = &group_->limit_lifted(),
              // One a save, so that the saves look at all pieces in turn.
              .recheck = {.round = shared_saves_ + static_cast<std::uint64_t>(run_.started.record.attempt)}},
      .patience = &group_->patience()};
  limits.begin_within = std::min(limits.begin_within, longest_wait());
  limits.reports_within = std::min(limits.reports_within, longest_wait());
  return limits;
}

// Saves.

void OtherRanks::add_values(Measurements& measurements) {
  for (const auto& [name, value] : best_) measurements.add(name, run_.step(), value);
}

void OtherRanks::staged(const BegunSave& save) {
  best_.clear();
  if (leads()) return;
  // Rank 0's outcome settles this handle on this thread, which must not wait for itself.
  save->settled_by = std::this_thread::get_id();
  group_->begin_save(save);
  // Now: the share may be handed over later, by another thread, when training has gone on.
  if (plan_ != 0) share_own_ = own_now(save->step);
}

void OtherRanks::join(WriteRequest& request, const Staged& staged, int round, bool has_all) {
  if (alone()) return;
  request.usual = !(sharing() && round < 0);
  if (!staged.shares && !has_all) request.complete = bring_own_of_others(*request.snapshot);
  if (!pay(round)) {
    if (staged.shares) throw Error("the other ranks do not take part in the save of which this is a share");
    return;
  }
  SharedSave shared{
      .plan = request.plan, .shares = staged.shares, .number = static_cast<std::uint64_t>(round)};
  request.others =
      std::make_shared<LedSave>(group_->shared(), request.snapshot->step, std::move(shared), limits());
}

void OtherRanks::hand_share(const run::Write& action, Staged staged, const BegunSave& save) {
  HandedShare share{.save = {.plan = std::move(staged.plan),
                             .shares = std::move(staged.shares),
                             .number = static_cast<std::uint64_t>(action.round)},
                    .step = action.step,
                    .snapshot = std::move(staged.snapshot),
                    .own = std::exchange(share_own_, {}),
                    .how = limits(),
                    .handle = save};
  share.ended = [this, save_id = action.save](SharedOutcome::Kind kind) {
    switch (kind) {
      case SharedOutcome::Kind::committed:
        return share_ended_(save_id, run::Outcome::durable);
      case SharedOutcome::Kind::failed:
      case SharedOutcome::Kind::superseded:
        return share_ended_(save_id, run::Outcome::failed);
      default:  // the votes tell
        return share_ended_(save_id, run::Outcome::overtaken);
    }
  };
  writer_->hand(std::move(share));
}

void OtherRanks::decline(int round, const NotStaged& failure) {
  if (alone()) return;
  const auto number = static_cast<std::uint64_t>(round);
  if (leads()) {
    const auto step = pay(round);
    if (!step) return;
    return failure.step == *step ? group_->shared().decline(*step, failure.why, number)
                                 : group_->shared().leave_out(*step, number);
  }
  if (round != round_ || plan_ == 0) return;
  const std::string why =
      failure.step == run_.step() ? failure.why : "it still writes its share of the save before";
  log_error("this rank takes no part in the save of step {}: {}", run_.step(), why);
  group_->shared().decline(run_.step(), why, number);
  tell_own();
}

SaveHandle OtherRanks::send_own() {
  tell_own();
  try {
    // Ends this rank at the same boundary as rank 0, which stages the same state.
    run_.stager.check_source();
  } catch (const std::exception& error) {
    run_.unsavable.learn_from(error);
  }
  const auto save =
      std::make_shared<SaveHandle::Shared>(run_.step(), SaveStatus::staging, run_.time.boundary(), run_.book);
  save->left_to_others();
  save->settled_by = std::this_thread::get_id();
  save->staged(run_.clock.now());
  return group_->begin_save(save);
}

// The image has room for it behind rank 0's own copy, so both can be filled at the same time.
std::function<void()> OtherRanks::bring_own_of_others(const Snapshot& snapshot) const {
  if (!has_own_of(1, snapshot.layout->tensors())) return {};
  return [&group = *group_, &clock = run_.clock, layout = snapshot.layout, arena = snapshot.arena,
          step = snapshot.step] {
    for (int rank = 1; rank < group.world_size(); ++rank) {
      const std::string own =
          hear_patiently(group.guarded(), clock, rank, own_text(step), kOwnWait, &group.patience());
      // The first byte says what follows: the bytes, or why there are none.
      if (!own.starts_with(kOwnBytes)) {
        throw Error("rank " + std::to_string(rank) +
                    " could not copy its random numbers: " + own.substr(own.empty() ? 0 : 1));
      }
      group.before_parting(
          [&] { put_own_of(rank, std::string_view(own).substr(1), *layout, arena->bytes()); });
    }
  };
}

void OtherRanks::hold() noexcept {
  try {
    held_own_ = own_of(run_.source);
    held_step_ = run_.step();
  } catch (const std::exception& error) {
    log_debug("this rank's own state at its last step is not kept: {}", what_of(error));
  }
}

std::string OtherRanks::own() const { return held_step_ == run_.step() ? held_own_ : own_of(run_.source); }

// The content of own_text(step); empty: this rank has no own state.
std::string OtherRanks::own_now(std::int64_t step) {
  own_failed_ = false;
  try {
    std::string now = own();
    if (!now.empty()) now.insert(0, 1, kOwnBytes);
    return now;
  } catch (const std::exception& error) {
    log_error("this rank's own state at step {} could not be copied: {}", step, what_of(error));
    own_failed_ = true;  // sent again at the next request
    return std::string(1, kNoOwn) + what_of(error);
  }
}

// Once for each step. A failure fails this save alone.
void OtherRanks::tell_own() {
  const std::int64_t step = run_.step();
  if (told_ == step && !own_failed_) return;
  const std::string own = own_now(step);
  if (own.empty()) return;
  group_->channel().tell(own_text(step), own);
  if (told_ == step) return;
  // Rank 0 has begun another save since: it has read this text, or never will.
  if (told_before_ >= 0) group_->channel().forget(own_text(told_before_));
  told_before_ = std::exchange(told_, step);
}

void OtherRanks::lift_limit(bool so) noexcept {
  if (alone()) return;
  so ? group_->lift_limit() : group_->restore_limit();
}

std::shared_ptr<Snapshot> OtherRanks::part_of(std::shared_ptr<Snapshot> whole) const {
  return alone() ? whole : share_of(group_->rank(), whole);
}

// Evaluations.

bool OtherRanks::evaluation_begins() {
  if (alone()) return false;
  const std::int64_t step = run_.step();
  // A second evaluation at one step is another boundary in the ranks' messages.
  const bool another = std::exchange(evaluated_, step) == step;
  evaluations_ = another ? evaluations_ + 1 : 0;
  const MutexLock lock(mutex_);
  boundary_ = boundary_text(step, evaluations_);
  return another;
}

// Without this text, rank 0 commits nothing before the evaluation is over.
void OtherRanks::send_share() noexcept {
  try {
    const std::string now = own();
    if (now.empty()) return;
    std::string name = boundary_text(evaluated_, evaluations_);
    group_->channel().tell(name, now);
    told_boundaries_.push_back(std::move(name));
    if (told_boundaries_.size() <= kStillWanted) return;
    group_->channel().forget(told_boundaries_.front());
    told_boundaries_.erase(told_boundaries_.begin());
  } catch (const std::exception& error) {
    log_debug("this rank's own state in an evaluation could not be sent to rank 0: {}", what_of(error));
  }
}

std::function<void(const Snapshot& image)> OtherRanks::own_of_boundary(
    const std::vector<TensorSpec>& tensors) {
  std::string name;
  {
    const MutexLock lock(mutex_);
    name = boundary_;
  }
  try {
    std::vector<std::string> own;
    own.reserve(static_cast<std::size_t>(world_size()));
    if (!has_own_of(1, tensors)) return [](const Snapshot&) {};
    for (int rank = 1; rank < group_->world_size(); ++rank) {
      // Without waiting: the next look asks again.
      own.push_back(group_->guarded().hear(rank, name, Duration::zero()));
    }
    return [this, own = std::move(own)](const Snapshot& image) {
      for (int rank = 1; rank < group_->world_size(); ++rank) {
        put_own_of(rank, own[static_cast<std::size_t>(rank - 1)], *image.layout, image.arena->bytes());
      }
    };
  } catch (const std::exception&) {  // the text has not arrived, or never will
    return {};
  }
}

void OtherRanks::call(bool so) noexcept {
  if (!alone()) group_->channel().call(so);
}

void OtherRanks::heard(const Notice& notice) noexcept {
  if (alone()) return;
  // By the signs of life and not by a vote: the machine may stand still before the next vote.
  if (notice.stands_still) group_->channel().expect_silence(*notice.stands_still);
  if (notice.kind == NoticeKind::thawed) group_->channel().expect_silence(Duration::zero());
}

// The end.

void OtherRanks::tell_outcome(int code, const std::string& reason) {
  group_->tell(asked_ ? kAfterAll : kOutcome,
               {{"code", code}, {"reason", reason}, {"durable", run_.newest_durable()}});
}

OtherRanks::Outcome OtherRanks::hear_outcome(const std::function<bool()>& told) {
  nlohmann::json outcome = group_->hear(0, kOutcome, kOutcomeWait);
  if (outcome.value("asks", false)) {
    group_->tell(kToldToStop, {{"told", told()}});
    outcome = group_->hear(0, kAfterAll, kOutcomeWait);
  }
  Outcome heard{.code = outcome.value("code", static_cast<int>(ExitCode::internal)),
                .reason = outcome.value("reason", std::string()),
                .durable = outcome.value("durable", std::int64_t{-1})};
  Durable& known = run_.started.durable;
  if (heard.durable > known.step) known = {heard.durable, {}, run_.clock.now()};
  // Before settle(): saves that rank 0 has made durable end as durable, and only the others as failed.
  group_->learn({.step = run_.step(), .durable = heard.durable});
  return heard;
}

// The others wait for the outcome, and answer instead.
std::string OtherRanks::ask_for_stops() noexcept {
  std::string why;
  try {
    group_->tell(kOutcome, {{"asks", true}});
    asked_ = true;
    for (int rank = 1; rank < group_->world_size(); ++rank) {
      const bool told = group_->hear(rank, kToldToStop, kOwnWait).value("told", false);
      if (told && why.empty()) why = "rank " + std::to_string(rank) + " was told to stop";
    }
  } catch (const std::exception& error) {
    log_debug("not all ranks told whether they were told to stop: {}", what_of(error));
  }
  return why;
}

void OtherRanks::limit_waits(Duration grace) noexcept {
  if (!alone()) group_->patience().end_by(run_.clock.now() + grace);
}

bool OtherRanks::rests() const { return !writer_ || writer_->wait_idle(kRest); }

void OtherRanks::settle(const char* why) noexcept {
  if (alone()) return;
  if (leads()) {
    std::array<Debt, 4> left;
    {
      const MutexLock lock(mutex_);
      left = std::exchange(debts_, {});
    }
    for (const Debt& debt : left) {
      if (debt.round != 0) group_->shared().leave_out(debt.step, static_cast<std::uint64_t>(debt.round));
    }
  }
  group_->settle(SaveStatus::failed, why);
}

void OtherRanks::part() {
  if (!alone()) group_->part();
}

}}}  // namespace holdfast::v0_2::internal
