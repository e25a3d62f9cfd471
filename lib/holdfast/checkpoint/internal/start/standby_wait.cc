#include "holdfast/checkpoint/internal/start/standby_wait.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "holdfast/base/env.h"
#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/system/machine.h"
#include "holdfast/base/text.h"
#include "holdfast/store/attempt.h"
#include "holdfast/store/claim.h"
#include "holdfast/store/names.h"
#include "holdfast/store/recovery.h"
#include "holdfast/store/run_progress.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

constexpr Duration kLookEvery = std::chrono::milliseconds(50);
constexpr Duration kLongLook = std::chrono::seconds(15);  // such as one that began while the volume was away
constexpr Duration kAfterTrouble = std::chrono::seconds(2);
constexpr Duration kFetchAgain = std::chrono::seconds(20);  // bytes from a store cost money
constexpr Duration kHearStopEvery = std::chrono::milliseconds(25);

std::int64_t since_1970(WallTime time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
}

std::string attempt_text(const RunState& state) {
  return "attempt " + std::to_string(state.attempt) +
         (state.host.empty() ? "" : " (host " + state.host + ")") + " ended as " + word_of(state.phase) +
         (state.reason.empty() ? "" : ": " + state.reason);
}

// Another start would end in the same way, whoever makes it.
bool is_final(int code) {
  return code == static_cast<int>(ExitCode::usage) || code == static_cast<int>(ExitCode::superseded) ||
         code == static_cast<int>(ExitCode::refused) || code == static_cast<int>(ExitCode::forced);
}

}  // namespace

StandbyWait::StandbyWait(Run& run, StartFinder& finder)
    : run_(run),
      finder_(finder),
      stands_by_(env_flag(kEnvStandby).value_or(false)),
      takeover_after_(env_duration(kEnvTakeoverAfter)) {}

StandbyWait::~StandbyWait() { stop_reading(); }

void StandbyWait::stop_reading() {
  if (!reading_.valid()) return;
  run_.verifier.stop_reading();
  if (home_) home_->stop();
}

AttemptNumber StandbyWait::await() {
  if (!stands_by_) return 0;
  if (others_.stand_by) others_.stand_by();
  sign_ = {.host = host_name(), .pid = getpid(), .since_ms = since_1970(run_.clock.wall_now())};
  changed_ = run_.clock.now();
  const std::string place = env_text(kEnvMirrorHome).value_or(run_.options.start.home);
  if (!place.empty() && !home_) home_ = std::make_unique<StandbyHome>(run_, place, [this] { hear_stop(); });
  struct Withdrawal {
    StandbyWait& wait;
    ~Withdrawal() { wait.withdraw_sign(); }
  } const withdrawal{*this};
  for (;; rest(troubled_ ? kAfterTrouble : kLookEvery)) {
    try {
      const SteadyTime asked = run_.clock.now();
      const View view = look();
      if (run_.clock.now() - asked > kLongLook) changed_ = run_.clock.now();
      troubled_ = false;
      // A machine of its own ends soon: a claim would only take the run from one that lives on.
      const bool ends = one_ends() || run_.monitor.deadline().has_value();
      if ((!ends || holds_home()) && is_free(view)) {
        finish_reading();
        if (!home_) return view.highest + 1;
        // False: another start was quicker.
        if (home_->claim(view.highest) && home_->prepare()) return 0;
      }
      say_for_whom(view);
      follow(view);
      if (!ends) renew_sign();
    } catch (const Error& error) {
      if (error.exit_code() != ExitCode::io_failed) throw;
      // Silence counts only while there is an answer: the holder may have been as cut off as this standby.
      changed_ = run_.clock.now();
      if (!std::exchange(troubled_, true)) {
        log_warning("{}; this standby goes on waiting, and looks again", error.what());
      }
    }
  }
}

StandbyWait::View StandbyWait::look() { return home_ ? look_home() : look_here(); }

StandbyWait::View StandbyWait::look_home() {
  const HomeWord word = home_->look();
  View view{.highest = word.highest, .word = {.attempt = word.highest, .state = word.holder}};
  view.newest = word.newest;
  view.trace = std::to_string(word.highest) + " " + word.newest;
  if (word.holder) {
    view.sign = parse_utc(word.holder->time);
    view.trace += std::string(" ") + word_of(word.holder->phase) + " " + word.holder->time;
  }
  return view;
}

StandbyWait::View StandbyWait::look_here() const {
  View view;
  const auto run = run_.file_system.open_directory(run_.options.directory, false);
  if (!run) return view;
  view.highest = highest_attempt(*run);
  view.word = last_word(*run);
  const auto candidates = candidates_in(*run);
  if (!candidates.empty()) view.newest = candidates.front().name;
  const auto consider = [&](std::optional<WallTime> time) {
    if (time) view.sign = std::max(view.sign.value_or(*time), *time);
  };
  view.trace = std::to_string(view.highest) + " " + view.newest;
  if (view.word.state) {
    consider(parse_utc(view.word.state->time));
    view.trace += std::string(" ") + word_of(view.word.state->phase) + " " + view.word.state->time;
  }
  if (const auto progress = read_progress(*run, view.word.attempt)) {
    consider(WallTime(std::chrono::milliseconds(progress->unix_ms)));
    view.trace += " " + std::to_string(progress->beat);
  }
  return view;
}

bool StandbyWait::is_free(const View& view) {
  if (holds_home() || is_lost(view)) return true;
  const auto& state = view.word.state;
  if (!state) return false;
  switch (state->phase) {
    case RunPhase::starting:
    case RunPhase::running:
      return false;
    case RunPhase::complete:
      sign_.complete = true;
      throw Error("the run is complete at step " + std::to_string(state->step) +
                      "; this standby is not needed, and has claimed nothing",
                  ExitCode::complete);
    case RunPhase::superseded:
      throw SupersededError(attempt_text(*state) + "; this standby has claimed nothing");
    case RunPhase::failed:
      if (is_final(state->exit_code)) {
        throw Error(attempt_text(*state) + "; this standby has claimed nothing",
                    static_cast<ExitCode>(state->exit_code));
      }
      break;
    case RunPhase::interrupted:
      break;
  }
  if (std::exchange(told_.taken_over, state->attempt) != state->attempt) {
    log_info("{}; this standby takes over", attempt_text(*state));
  }
  return true;
}

// Only if somebody has said after which silence: nobody can tell a machine that is gone from one that cannot
// be heard.
bool StandbyWait::is_lost(const View& view) {
  const SteadyTime now = run_.clock.now();
  if (view.trace != trace_) {
    trace_ = view.trace;
    changed_ = now;
  }
  if (!takeover_after_) return false;
  const Duration words_take = home_ ? home_->words_take() : Duration::zero();
  if (now - changed_ < *takeover_after_ + words_take) return false;
  // An empty HOME may be one that is away.
  if (home_ && view.highest == 0) return false;
  if (view.word.state && is_end(view.word.state->phase)) return false;
  log_warning("the run in {} has given no sign for {}; this standby takes over", run_.options.directory,
              format_duration(now - changed_));
  return true;
}

// One read at a time: the verifier keeps one state.
void StandbyWait::follow(const View& view) {
  take_in();
  // Only a start from the newest checkpoint can be foreseen.
  if (tried_.again_at && run_.clock.now() >= *tried_.again_at) tried_.name.clear();
  if (reading_.valid() || view.newest.empty() || view.newest == tried_.name) return;
  if (!run_.options.start.resume_from.empty()) return;
  tried_ = {.name = view.newest, .told = tried_.told};
  reading_ = std::async(std::launch::async, [this, wanted = !checked_] {
    if (home_) home_->fetch();
    ReadAhead read{.found = finder_.newest_here(), .start = {}};
    // At once, because retention may delete the file.
    if (wanted && read.found.newest) read.start = finder_.candidate(*finder_.open_store(), read.found);
    return read;
  });
}

void StandbyWait::take_in() {
  if (!reading_.valid() || reading_.wait_for(Duration::zero()) != std::future_status::ready) return;
  try {
    const auto [found, start] = reading_.get();
    if (!found.newest) return;
    // A program that can never take over says so now, and not when the holder is gone.
    if (start) finder_.check(*start);
    checked_ = true;
    sign_.checkpoint = found.newest->name;
    sign_.step = found.newest->step;
    renew_at_ = {};
    log_debug("standby: {} is at hand", found.newest->name);
  } catch (const Error& error) {
    if (error.exit_code() != ExitCode::io_failed) throw;
    // HOME is away, or this disk is full. Without a HOME, retention has deleted it meanwhile.
    if (home_ && std::exchange(tried_.told, tried_.name) != tried_.name) {
      log_warning("{}; the newest checkpoint is not at hand here, and is fetched again", error.what());
    } else {
      log_debug("standby: {}", error.what());
    }
    tried_.again_at = run_.clock.now() + (home_ ? kFetchAgain : kAfterTrouble);
  }
}

// The start wants the same checkpoint. A second read beside this one would slow both down, and hold the state
// twice. A fetch from HOME writes in the run directory, so it ends before a claim there.
void StandbyWait::finish_reading() {
  while (reading_.valid()) {
    reading_.wait_for(kHearStopEvery);
    hear_stop();
    take_in();
  }
}

void StandbyWait::renew_sign() {
  const SteadyTime now = run_.clock.now();
  if (now < renew_at_) return;
  sign_.unix_ms = since_1970(run_.clock.wall_now());
  if (home_) home_->put_sign(sign_);
  // With a HOME for `holdfast status` on this machine.
  const auto run = run_.file_system.open_directory(run_.options.directory, false);
  if (!run && !home_) return;
  if (run) write_note(*run, kStandbyName, to_json(sign_));
  renew_at_ = now + (home_ ? home_->renews() : kStandbyRenews);
}

void StandbyWait::withdraw_sign() noexcept {
  if (home_) home_->leave();
  try {
    // A launcher may turn other codes into 0, so the supervisor of a standby with a HOME looks for this.
    const bool says_so = home_ && sign_.complete;
    const auto run = run_.file_system.open_directory(run_.options.directory, says_so);
    sign_.unix_ms = 0;
    if (says_so) {
      write_note(*run, kStandbyName, to_json(sign_));
    } else if (run) {
      run->unlink(kStandbyName);
    }
  } catch (const std::exception& error) {  // it gets old by itself
    log_debug("standby: {}", what_of(error));
  }
}

void StandbyWait::say_for_whom(const View& view) {
  const AttemptNumber attempt = view.word.attempt;
  if (std::exchange(told_.waits_for, attempt) == attempt) return;
  if (attempt == 0) {
    log_info("standing by in {}: nobody has trained there yet", run_.options.directory);
    return;
  }
  const std::string host = view.word.state ? view.word.state->host : std::string();
  const std::string age =
      view.sign ? format_duration(std::max(
                      std::chrono::duration_cast<Duration>(run_.clock.wall_now() - *view.sign), Duration())) +
                      " old"
                : "not there yet";
  log_info("standing by for attempt {}{}, whose last sign is {}", attempt,
           host.empty() ? "" : " (host " + host + ")", age);
}

void StandbyWait::rest(Duration time) {
  const SteadyTime end = run_.clock.now() + time;
  do {
    hear_stop();
    run_.clock.sleep_for(kHearStopEvery);
  } while (run_.clock.now() < end);
}

void StandbyWait::hear_stop() {
  if (!run_.start_must_end()) {
    one_ends();  // throws if another rank stops
    return;
  }
  stop_reading();
  throw Error("interrupted (" + run_.monitor.reason() + ") while standing by; nothing was " +
                  (holds_home() ? "begun" : "claimed"),
              static_cast<ExitCode>(run_.options.notices.exit_code_interrupted));
}

}}}  // namespace holdfast::v0_2::internal
