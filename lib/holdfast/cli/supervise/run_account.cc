#include "holdfast/cli/supervise/run_account.h"

#include <algorithm>

#include "holdfast/base/exit_code.h"
#include "holdfast/base/utf8.h"
#include "holdfast/cli/supervise/predecessor.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr Duration kDeadAfter = std::chrono::minutes(10);  // a living trainer writes a line every 10 s

Ending exit_with(int code) { return {.exit_code = code}; }

Ending exit_with(ExitCode code) { return exit_with(static_cast<int>(code)); }

std::string says(const RunState& state) {
  return "attempt " + std::to_string(state.attempt) + " says '" + word_of(state.phase) + "', not 'complete'" +
         (state.reason.empty() ? "" : " (" + printable(state.reason) + ")");
}

}  // namespace

bool may_be_alive(const AttemptWord& word, const RunNews& news) {
  if (word.state && is_end(word.state->phase)) {
    return false;
  }
  // On this machine the process itself can be asked; elsewhere only its signs of life count.
  if (is_here(word.claimant) && !is_running(word.claimant.process)) return false;
  return !news.silent_for || *news.silent_for < kDeadAfter;
}

Judgement judge_standby(const Ending& ending, const RunNews& news, bool has_home) {
  const auto state = news.attempts.empty() ? std::nullopt : news.attempts.front().state;
  const bool complete = has_home ? ending.code() == 0 && news.standby_says_complete
                                 : state && state->phase == RunPhase::complete;
  if (complete) return {.ending = {}, .remark = "the run is complete, and this standby is not needed"};
  // torchrun ends with 1 after every failure. A standby takes over from other ends of a holder.
  const bool refused = state && state->phase == RunPhase::failed &&
                       (state->exit_code == static_cast<int>(ExitCode::usage) ||
                        state->exit_code == static_cast<int>(ExitCode::refused));
  if (refused && ending.code() == 1) {
    return {.ending = exit_with(state->exit_code), .remark = to_text(ending) + ", but " + says(*state)};
  }
  if (ending.code() != 0) return {.ending = ending};
  return {.ending = exit_with(ExitCode::internal),
          .remark = to_text(ending) + ", but it has claimed nothing, and the run is not complete"};
}

std::string to_text(const AttemptWord& word) {
  std::string text = "attempt " + std::to_string(word.attempt);
  if (!word.claimant.host.empty()) text += " (host " + printable(word.claimant.host) + ")";
  return text;
}

SupervisedRun::SupervisedRun() : supervisor_(new_supervisor_name()) {}

void SupervisedRun::begin(const RunNews& news) {
  // With a slash at its end: names are compared by their beginning, and life 1 is not life 12.
  life_ = supervisor_ + "/" + std::to_string(++lives_) + "/";
  // Unknown if the directory did not answer. Then nobody counts as newer, and only the name proves an
  // attempt ours.
  before_ = news.readable ? std::optional(news.newest()) : std::nullopt;
  if (lives_ == 1) first_ = before_;
  learn(news);
}

void SupervisedRun::learn(const RunNews& news) {
  // The newest first. A run that went back has a lower step than before, and makes progress from there.
  for (const AttemptWord& word : news.attempts) {
    if (!word.state || word.state->durable_step < 0) continue;
    durable_step_ = word.state->durable_step;
    return;
  }
}

bool SupervisedRun::is_ours(const AttemptWord& word, const RunNews& news, AttemptNumber since,
                            const std::string& name) const {
  // The trainer got the name from us by its environment, so this is certain.
  if (!word.claimant.supervisor.empty()) return word.claimant.supervisor.starts_with(name);
  // The name may be lost on the way (a launcher that cleans the environment). Then a newer attempt is ours,
  // unless one with our name exists.
  if (!before_ || word.attempt <= since) return false;
  return std::none_of(news.attempts.begin(), news.attempts.end(), [this](const AttemptWord& other) {
    return other.claimant.supervisor.starts_with(supervisor_ + "/");
  });
}

// By its name alone: beside a standby other attempts begin that have none.
bool SupervisedRun::has_claimed(const RunNews& news) const {
  return std::any_of(news.attempts.begin(), news.attempts.end(),
                     [this](const AttemptWord& word) { return word.claimant.supervisor.starts_with(life_); });
}

bool SupervisedRun::is_of_this_life(const AttemptWord& word) const {
  return word.attempt != 0 && is_ours(word, {.attempts = {word}}, before_.value_or(0), life_);
}

const AttemptWord* SupervisedRun::newer_attempt(const RunNews& news) const {
  if (news.attempts.empty() || !before_) return nullptr;
  const AttemptWord& newest = news.attempts.front();
  if (newest.attempt <= *before_ || is_ours(newest, news, *before_, supervisor_ + "/")) return nullptr;
  return may_be_alive(newest, news) ? &newest : nullptr;
}

Judgement SupervisedRun::end(const Ending& ending, const RunNews& news) {
  Judgement judged{.ending = ending};
  // Before learn() raises it.
  const std::int64_t before = durable_step_;
  for (const AttemptWord& word : news.attempts) {
    if (word.state && is_ours(word, news, before_.value_or(0), life_)) {
      judged.progress = judged.progress || word.state->durable_step > before;
    }
  }
  learn(news);
  bool was_interrupted = false;
  for (const AttemptWord& word : news.attempts) {
    if (!word.claimant.supervisor.starts_with(life_)) continue;
    if (!word.state || word.state->phase != RunPhase::interrupted) continue;
    was_interrupted = true;
    judged.handed_over = judged.handed_over || word.state->reason.ends_with(kHandedOver);
  }
  const auto counts_as = [&](const Ending& other, const std::string& why) {
    judged.ending = other;
    judged.remark = to_text(ending) + ", but " + why;
  };
  if (const AttemptWord* const other = newer_attempt(news)) {
    // A standby may be quick once an attempt has said that it was interrupted.
    const bool had_ended = was_interrupted && ending.code() == static_cast<int>(ExitCode::interrupted);
    if (!had_ended && ending.code() != static_cast<int>(ExitCode::superseded)) {
      counts_as(exit_with(ExitCode::superseded), to_text(*other) + " has taken the run over");
    }
    return judged;
  }
  const bool of_this_life = !news.attempts.empty() && is_of_this_life(news.attempts.front());
  if (const auto& state = of_this_life ? news.attempts.front().state : std::nullopt;
      state && ending.code() != 0) {
    // A stop ends the shell around a trainer by the signal itself, and the trainer commits after it. Whatever
    // the shell or launcher says, the next life goes on. A code that the trainer chose itself stays.
    if (state->phase == RunPhase::interrupted && ending.code() != state->exit_code) {
      if (ending.code() != static_cast<int>(ExitCode::interrupted)) {
        counts_as(exit_with(ExitCode::interrupted), says(*state));
      }
    } else if (ending.code() == 1 && state->phase == RunPhase::failed && state->exit_code > 0) {
      // torchrun ends with 1 after every failure.
      counts_as(exit_with(state->exit_code), says(*state));
    }
    return judged;
  }
  // Other codes are believed, but not a 0: a launcher may turn an interruption or a failure into it, and the
  // run would count as over.
  if (ending.code() != 0) return judged;

  if (news.attempts.empty()) {
    counts_as(exit_with(ExitCode::internal), news.silence);
    return judged;
  }
  const AttemptWord& newest = news.attempts.front();
  // An earlier life's attempt is enough: this life may have ended before its claim.
  if (!is_ours(newest, news, first_.value_or(0), supervisor_ + "/")) {
    counts_as(exit_with(ExitCode::internal),
              "the command began no attempt in the run directory; the newest is " + to_text(newest) +
                  ". Is --directory the directory that the command trains in?");
    return judged;
  }
  if (!newest.state) {
    counts_as(exit_with(ExitCode::internal), news.silence);
    return judged;
  }
  const RunState& state = *newest.state;
  switch (state.phase) {
    case RunPhase::complete:
      judged.complete = true;
      break;
    case RunPhase::interrupted:
      counts_as(exit_with(ExitCode::interrupted), says(state));
      break;
    case RunPhase::superseded:
      counts_as(exit_with(ExitCode::superseded), says(state));
      break;
    case RunPhase::failed:
      counts_as(state.exit_code > 0 ? exit_with(state.exit_code) : exit_with(ExitCode::internal),
                says(state));
      break;
    case RunPhase::starting:
    case RunPhase::running:
      counts_as(exit_with(ExitCode::internal), says(state));
      break;
  }
  return judged;
}

}}  // namespace holdfast::v0_2
