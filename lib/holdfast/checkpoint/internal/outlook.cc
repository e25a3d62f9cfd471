// Nothing here throws or ends a training. Without memory for a plan the step goes on, and the next one asks
// again.
#include "holdfast/checkpoint/internal/outlook.h"

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/store/run_state.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// Less is no hibernation.
constexpr Duration kSlept = std::chrono::seconds(5);
// Waits may exceed a guessed deadline by this much. Without a limit, a disk that hangs would hold the
// process.
constexpr Duration kBeyondGuess = std::chrono::minutes(5);

// Only a run that ended by itself, and is not told to stop, has no limit.
bool may_wait(bool ended_by_itself, bool told) { return ended_by_itself && !told; }

OnNotice chosen_policy(const NoticeOptions& options, const Notice& notice, SteadyTime now) noexcept {
  if (options.on_notice != OnNotice::callback) return options.on_notice;
  try {
    const Duration left = time_until(*notice.deadline, now);
    const OnNotice chosen = options.decide(notice, left);
    // A function that answers `callback` has decided nothing.
    return chosen == OnNotice::callback ? OnNotice::train_on : chosen;
  } catch (const std::exception& error) {
    log_warning("what to do about the notice could not be decided ({}): training on", what_of(error));
  } catch (...) {
    log_warning("what to do about the notice could not be decided: training on");
  }
  return OnNotice::train_on;
}

bool counts(const BegunSave& insurance) {
  if (!insurance) return false;
  const SaveStatus status = SaveHandle(insurance).status();
  return is_open(status) || status == SaveStatus::durable;
}

}  // namespace

void Outlook::add_agreement(Duration longest) {
  agreement_ = std::max(agreement_.value_or(Duration::zero()), longest);
}

// Ranks act one boundary after the vote, so a decision costs one more step.
Costs Outlook::costs() const noexcept {
  Costs known = costs_.costs();
  if (agreement_) known.agreement = known.step + *agreement_;
  return known;
}

bool Outlook::must_stop() const noexcept {
  return stop_.leaving || announced_.stop_requested() || (writer_ != nullptr && writer_->superseded());
}

bool Outlook::should_stop() noexcept {
  if (must_stop()) return true;
  try {
    announced_.drop_outlived(clock_.now());
    const auto notice = announced_.standing();
    if (!notice || notice->hibernates) return false;
    pursue(*notice);
    return policy() == OnNotice::exit;
  } catch (const std::bad_alloc&) {
    return false;  // asked again at the next step
  }
}

std::string Outlook::reason() const noexcept {
  if (writer_ != nullptr && writer_->superseded()) return writer_->superseded_reason();
  return text_or_out_of_memory([&] {
    if (stop_.leaving) return stop_.reason;
    const bool exits = active_ && policy() == OnNotice::exit;
    const bool hands_over = exits && standby_ready_ && !announced_.stop_requested();
    return announced_.stop_requested() || exits
               ? announced_.reason() + (hands_over ? std::string("; ") + kHandedOver : "")
               : std::string();
  });
}

void Outlook::leave() noexcept {
  if (stop_.leaving) return;
  stop_.reason = reason();
  stop_.leaving = true;
}

// It stays the same notice until its source withdraws it or announces another one.
void Outlook::pursue(const Notice& notice) {
  if (active_ && active_->source == notice.source && active_->seen == *notice.seen) return;
  active_ = ActiveNotice{.source = notice.source,
                         .seen = *notice.seen,
                         .policy = chosen_policy(options_, notice, clock_.now()),
                         .asleep = clock_.asleep(),
                         .insurance = std::exchange(answer_, nullptr)};
  warnings_.again();
}

void Outlook::insured_by(const BegunSave& save) {
  if (active_) active_->insurance = save;
}

void Outlook::answered_by(const BegunSave& save) {
  if (const auto notice = announced_.standing()) pursue(*notice);
  answer_ = active_ ? nullptr : save;
  insured_by(save);
}

void Outlook::forget_answer(std::int64_t step) {
  if (answer_ && step > answer_->step) answer_ = nullptr;
}

Plan Outlook::decide(const Reached& at) noexcept {
  try {
    const Plan decided = plan(at);
    if (decided.too_late) warnings_.too_late(at);
    if (decided.not_home) warnings_.not_home(at);
    return decided;
  } catch (const std::exception& error) {
    log_debug("no plan for the notice: {}", what_of(error));
    return {};
  }
}

Plan Outlook::plan(const Reached& at) {
  if (must_stop()) {
    const Costs known = costs_.costs();
    const SteadyTime now = clock_.now();
    Plan stop = plan_for_stop(now, announced_.named_ahead(now), known, at.standing);
    // A guessed grace does not forbid a save, but it is what the way home has to share.
    const auto end = announced_.deadline();
    stop.not_home = end && *end > now && !is_home_by(*end, now, known, at.standing);
    return stop;
  }
  announced_.drop_outlived(clock_.now());
  while (const auto notice = announced_.standing()) {
    pursue(*notice);
    const SteadyTime now = clock_.now();
    Standing standing = at.standing;
    standing.insured = counts(active_->insurance);
    if (notice->hibernates && clock_.asleep() - active_->asleep > kSlept) {
      log_info("the machine has slept and is awake again: the run goes on");
      announced_.dismiss(now - kAliveAfter, true);
      continue;
    }
    // A deadline that has passed forbids nothing: the machine lives, so the run tries.
    const bool guessed = notice->guessed || *notice->deadline <= now;
    const OnNotice policy = this->policy();
    const Plan plan = plan_for_deadline(
        now, {.at = *notice->deadline, .hibernates = notice->hibernates, .guessed = guessed}, costs(),
        standing, policy);
    if (plan.move == Move::go_on) return {.move = Move::wait};  // outlived a moment ago
    return fits({.writing = standing.writing}) ? plan : without_commit(plan, standing, policy);
  }
  active_.reset();
  warnings_.again();
  return {};
}

// Without a stop, a deadline that passed before the wait began did not end the machine. A run that came to
// its end by itself loses nothing by trying. A machine that hibernates goes on with the write when it wakes
// up.
bool Outlook::out_of_time(SteadyTime since) const noexcept {
  if (may_wait(ended_by_itself_, must_stop())) return false;
  const SteadyTime now = clock_.now();
  const auto passed = [&](std::optional<SteadyTime> deadline) {
    return deadline && now >= *deadline && (announced_.stop_requested() || *deadline > since);
  };
  if (passed(announced_.earliest({.named = true, .sleeps = Monitor::Sleeps::left_out}))) return true;
  const auto guess = announced_.earliest({.sleeps = Monitor::Sleeps::left_out});
  return guess && passed(*guess + std::max<Duration>(kBeyondGuess,
                                                     3 * costs_.costs().commit.value_or(Duration::zero())));
}

bool Outlook::last_save_too_late(const Standing& writer) const noexcept {
  return !may_wait(ended_by_itself_, must_stop()) && !fits(writer);
}

bool Outlook::fits(const Standing& writer) const noexcept {
  const SteadyTime now = clock_.now();
  return !plan_for_stop(now, announced_.named_ahead(now), costs_.costs(), writer).too_late;
}

}}}  // namespace holdfast::v0_2::internal
