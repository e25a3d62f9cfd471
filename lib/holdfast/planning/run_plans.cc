// What an announced end means for the run now: the one plan by which all parts act.
#include <algorithm>
#include <utility>

#include "holdfast/planning/internal/planted.h"
#include "holdfast/planning/run_core.h"

namespace holdfast { inline namespace v0_2 { namespace run {
namespace {

// A wait may exceed a guessed end by this. Without a limit, a disk that hangs would hold the process.
constexpr Duration kBeyondGuess = std::chrono::minutes(5);
// An evaluation waits at most this long for an image, or for two commits.
constexpr Duration kWaitForEvaluation = std::chrono::seconds(30);
// Ranks agree within this beside the step that a decision costs.
constexpr Duration kAgreement = std::chrono::milliseconds(100);

}  // namespace

bool RunCore::must_stop() const {
  return leaving_ || ends_.stop_requested() || (superseded_ && !planted(Planted::ignores_a_newer_attempt));
}

// The same, or an end is announced for which the program exits.
bool RunCore::should_stop(bool own_only) const {
  if (must_stop()) return true;
  const RunEnds::End* const end = own_only ? ends_.own_standing() : ends_.standing();
  return end != nullptr && !end->hibernates && now_ < end->at + kAliveAfter &&
         policy_of(*end) == OnNotice::exit;
}

bool RunCore::hands_over() const {
  const RunEnds::End* const end = ends_.standing();
  return standby_ready_ && !ends_.stop_requested() && !superseded_ && end != nullptr && !end->hibernates;
}

// It stays the same notice until its source withdraws it or announces another one.
void RunCore::pursue(const RunEnds::End& end) {
  const Pursued now{.source = end.source, .seen = end.seen};
  if (pursued_ == now) return;
  pursued_ = now;
  told_late_ = told_no_room_ = told_not_home_ = false;
  insurance_ = std::exchange(answer_, {});
}

// A new notice may warn again.
void RunCore::forget_pursued() {
  pursued_.reset();
  insurance_ = {};
  told_late_ = told_no_room_ = told_not_home_ = false;
}

void RunCore::insured_by(int save) {
  if (pursued_) insurance_ = {.save = save, .counts = true};
}

// Ranks act a boundary after the vote.
Costs RunCore::costs_of_a_decision() const {
  Costs known = costs();
  if (planted(Planted::forgets_the_way_home)) known.home.reset();
  if (!alone()) known.agreement += known.step + kAgreement;
  return known;
}

std::optional<Duration> RunCore::writing_for() const {
  if (writer_ != Writer::writing) return std::nullopt;
  return now_ - (in_flight_ ? in_flight_->save : *open_).since;
}

Standing RunCore::standing() const {
  Standing at{
      .covered = covered(), .insured = insurance_.save > 0 && insurance_.counts, .writing = writing_for()};
  at.going_home = at.covered && !at.writing ? known_.going_home : known_.newer_going_home;
  return at;
}

// A commit that begins now ends before every named end that is still ahead. One that has passed forbids
// nothing: the machine lives.
bool RunCore::commit_fits() const {
  const SteadyTime after = planted(Planted::hides_a_named_end_behind_a_passed_one) ? SteadyTime::min() : now_;
  const SteadyTime named = ends_.earliest({.named = true, .after = after});
  const auto end = named == kNever ? std::nullopt : std::optional(named);
  return !plan_for_stop(now_, end, costs(), {.writing = writing_for()}).too_late;
}

bool RunCore::last_save_too_late() const {
  const bool may_wait = end_.by_itself && !must_stop();
  return !may_wait && !commit_fits();
}

Plan RunCore::decide() {
  const Plan plan = plan_now();
  if (plan.too_late && !std::exchange(told_late_, true)) say(Remark::too_late);
  if (plan.not_home && !std::exchange(told_not_home_, true)) say(Remark::not_home);
  return plan;
}

Plan RunCore::plan_now() {
  Standing at = standing();
  if (must_stop()) {
    Plan stop{.move = Move::stop, .too_late = !at.covered && !commit_fits()};
    // A guessed grace forbids no save, but it is what the way home has to share.
    const SteadyTime end = ends_.earliest({});
    stop.not_home = end != kNever && end > now_ && !is_home_by(end, now_, costs(), at);
    return stop;
  }
  if (ends_.drop_outlived(now_)) say(Remark::outlived);
  const RunEnds::End* const end = ends_.standing();
  if (end == nullptr) {
    forget_pursued();
    return {};
  }
  pursue(*end);
  at.insured = insurance_.save > 0 && insurance_.counts;
  const bool guessed = (end->guessed || end->at <= now_) && !planted(Planted::lets_a_guess_forbid);
  const Plan plan =
      plan_for_deadline(now_, {.at = end->at, .hibernates = end->hibernates, .guessed = guessed},
                        costs_of_a_decision(), at, policy_of(*end));
  if (planted(Planted::never_outlives_an_end) && plan.move == Move::go_on) return {.move = Move::wait};
  return commit_fits() ? plan : without_commit(plan, at, policy_of(*end));
}

// No save that begins now ends before the end that somebody named. All ranks compute the same answer.
bool RunCore::hopeless(const Vote& all) const {
  if (alone() || all.stop < 0 || all.left.named == kNoEnd) return false;
  return all.left.named > Duration::zero() && all.left.named < all.needs;
}

// When a wait that began at `since` has to end. Only a run that ended by itself, and is not told to stop,
// waits without a limit. A named end that had passed before the wait did not end the machine, and so counts
// as a guess. So does the end of another rank's machine: it does not end this process, and its withdrawal may
// never be heard.
SteadyTime RunCore::limit_of_wait(SteadyTime since) const {
  SteadyTime limit = kNever;
  const bool may_wait = end_.by_itself && !must_stop();
  if (!may_wait) {
    const bool own = !planted(Planted::gives_up_at_the_end_of_another);
    const SteadyTime named =
        ends_.earliest({.named = true, .sleeps = RunEnds::Sleeps::left_out, .after = since, .own_only = own});
    const SteadyTime guess = ends_.earliest({.sleeps = RunEnds::Sleeps::left_out});
    const Duration beyond = std::max(kBeyondGuess, 3 * costs().commit.value_or(Duration::zero()));
    limit = named;
    if (guess != kNever && (ends_.stop_requested() || guess + beyond > since)) {
      limit = std::min(limit, guess + (planted(Planted::gives_up_at_a_guess) ? Duration::zero() : beyond));
    }
  }
  if (keeping_ != Keep::nothing) {
    const Duration longest = std::max(kWaitForEvaluation, 2 * costs().commit.value_or(Duration::zero()));
    limit = std::min(limit, since + longest);
  }
  return limit;
}

}}}  // namespace holdfast::v0_2::run
