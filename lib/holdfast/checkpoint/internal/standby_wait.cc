#include "holdfast/checkpoint/internal/standby_wait.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "holdfast/base/env.h"
#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/machine.h"
#include "holdfast/base/text.h"
#include "holdfast/store/attempt.h"
#include "holdfast/store/claim.h"
#include "holdfast/store/names.h"
#include "holdfast/store/recovery.h"
#include "holdfast/store/run_progress.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

constexpr Duration kLookEvery = std::chrono::milliseconds(200);
constexpr Duration kHearStopEvery = std::chrono::milliseconds(20);

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

StandbyWait::~StandbyWait() {
  if (reading_.valid()) run_.verifier.stop_reading();
}

AttemptNumber StandbyWait::await() {
  if (!stands_by_) return 0;
  sign_ = {.host = host_name(), .pid = getpid(), .since_ms = since_1970(run_.clock.wall_now())};
  changed_ = run_.clock.now();
  struct Withdrawal {
    StandbyWait& wait;
    ~Withdrawal() { wait.withdraw_sign(); }
  } const withdrawal{*this};
  for (;; rest()) {
    try {
      const View view = look();
      troubled_ = false;
      // Its own machine ends soon: a claim would only take the run from one that lives on.
      const bool ends = run_.monitor.deadline().has_value();
      if (is_free(view) && !ends) return view.highest + 1;
      say_for_whom(view);
      follow(view);
      if (!ends) renew_sign();
    } catch (const IoError& error) {
      if (!std::exchange(troubled_, true)) {
        log_warning("{}; this standby goes on waiting, and looks again", error.what());
      }
    }
  }
}

StandbyWait::View StandbyWait::look() const {
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
  if (is_lost(view)) return true;
  const auto& state = view.word.state;
  if (!state) return false;
  switch (state->phase) {
    case RunPhase::starting:
    case RunPhase::running:
      return false;
    case RunPhase::complete:
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
  log_info("{}; this standby takes over", attempt_text(*state));
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
  if (!takeover_after_ || now - changed_ < *takeover_after_) return false;
  if (view.word.state && is_end(view.word.state->phase)) return false;
  log_warning("the run in {} has given no sign for {}; this standby takes over", run_.options.directory,
              format_duration(now - changed_));
  return true;
}

// One read at a time: the verifier keeps one state.
void StandbyWait::follow(const View& view) {
  take_in();
  // Only a start from the newest checkpoint can be foreseen.
  if (reading_.valid() || view.newest.empty() || view.newest == tried_) return;
  if (!run_.options.start.resume_from.empty()) return;
  tried_ = view.newest;
  reading_ = std::async(std::launch::async, [this, wanted = !checked_] {
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
  } catch (const IoError& error) {  // retention has deleted it meanwhile: a newer one is there
    log_debug("standby: {}", error.what());
  }
}

void StandbyWait::renew_sign() {
  const SteadyTime now = run_.clock.now();
  if (now < renew_at_) return;
  const auto run = run_.file_system.open_directory(run_.options.directory, false);
  if (!run) return;
  sign_.unix_ms = since_1970(run_.clock.wall_now());
  write_standby_sign(*run, sign_);
  renew_at_ = now + kStandbyRenews;
}

void StandbyWait::withdraw_sign() noexcept {
  try {
    if (const auto run = run_.file_system.open_directory(run_.options.directory, false)) {
      remove_standby_sign(*run);
    }
  } catch (const std::exception& error) {  // it gets old by itself
    log_debug("standby: {}", what_of(error));
  }
}

void StandbyWait::say_for_whom(const View& view) {
  const AttemptNumber attempt = view.word.attempt;
  if (told_ == attempt) return;
  told_ = attempt;
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

void StandbyWait::rest() {
  const SteadyTime end = run_.clock.now() + kLookEvery;
  do {
    if (run_.start_must_end()) {
      run_.verifier.stop_reading();
      throw Error("interrupted (" + run_.monitor.reason() + ") while standing by; nothing was claimed",
                  static_cast<ExitCode>(run_.options.notices.exit_code_interrupted));
    }
    run_.clock.sleep_for(kHearStopEvery);
  } while (run_.clock.now() < end);
}

}}}  // namespace holdfast::v0_2::internal
