#include "holdfast/checkpoint/internal/start/standby_home.h"

#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/system/machine.h"
#include "holdfast/base/text.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// For a call of HOME that stays silent.
constexpr Duration kPatience = std::chrono::seconds(30);
constexpr Duration kPatienceOfReader = std::chrono::minutes(2);  // a checkpoint may be large
// A standby ends within a second, whatever HOME does.
constexpr Duration kLeaving = std::chrono::milliseconds(400);

std::unique_ptr<Home> open_for_standby(Run& run, const std::string& place, holdfast::Pace& pace) {
  return open_home({.place = place, .mount = run.options.start.home_mount}, run.file_system, run.verifier,
                   pace);
}

StartChecks checks_of(const Run& run, AttemptNumber claimed) {
  return {.mount = run.options.mount, .only_ours = !run.options.start.trust_directory, .claimed = claimed};
}

}  // namespace

StandbyHome::StandbyHome(Run& run, const std::string& place, std::function<void()> hear_stop)
    : run_(run),
      place_(place),
      hear_stop_(std::move(hear_stop)),
      pace_(run.clock, 0,
            [this] {
              if (!deaf_) hear_stop_();
            }),
      ahead_pace_(run.clock, 0,
                  [this] {
                    if (stopped_) throw MirrorStopped();
                  }),
      ahead_home_(open_for_standby(run, place, ahead_pace_)) {
  ahead_pace_.set_patience(kPatienceOfReader);
  open();
}

void StandbyHome::fetch() {
  if (!ahead_) {
    ahead_ = std::make_unique<FetchAhead>(run_.file_system, run_.verifier, run_.options.directory,
                                          *ahead_home_, ahead_pace_, checks_of(run_, 0));
  }
  try {
    ahead_->fetch();
  } catch (...) {
    ahead_.reset();
    throw;
  }
}

const HomeWord& StandbyHome::look() {
  pace_.set_patience(kPatience);
  const HomeWord& word = watch_->look(run_.clock.now());
  if (word.highest == 0 && seen_) {
    throw HomeError(place_ + " is empty, and was not before: is its volume mounted?");
  }
  seen_ = word.highest != 0;
  return word;
}

// A Home that has claimed is for good what it is.
void StandbyHome::open() {
  after_.reset();
  claimed_ = 0;
  watch_.reset();
  home_ = open_for_standby(run_, place_, pace_);
  watch_ = std::make_unique<HolderWatch>(*home_);
}

bool StandbyHome::claim(AttemptNumber after) {
  if (claimed_ != 0) return true;
  // Kept if this throws, because a claim may lie there then.
  if (!after_) after_ = after;
  // A stop comes before a claim, or after it: then it is known whether there is one.
  deaf_ = true;
  struct Hears {
    bool& deaf;
    ~Hears() { deaf = false; }
  } const hears{deaf_};
  claimed_ = home_->claim_after(*after_);
  if (claimed_ != 0) return true;
  after_.reset();
  watch_->forget();
  return false;
}

bool StandbyHome::prepare() {
  try {
    const PreparedStart start =
        prepare_start_or_go_alone(run_.file_system, run_.verifier, run_.options.directory, *home_, pace_,
                                  run_.options.start.home_wait, checks_of(run_, claimed_));
    after_.reset();
    claimed_ = 0;  // the trainer's from here on
    pace_.set_patience(kPatience);
    say(RunPhase::starting, "", start.attempt);
    return true;
  } catch (const SupersededError& error) {
    log_info("{}; this standby goes on waiting", error.what());
    ahead_.reset();  // this start has claimed the run directory above it
    open();
    return false;
  }
}

void StandbyHome::say(RunPhase phase, const std::string& reason, AttemptNumber attempt) noexcept {
  try {
    tell_holder(*home_,
                {.phase = phase,
                 .reason = reason,
                 .exit_code = is_end(phase) ? static_cast<int>(ExitCode::interrupted) : 0,
                 .host = host_name(),
                 .time = format_utc(run_.clock.wall_now())},
                attempt);
  } catch (const std::exception& error) {
    log_debug("standby: {}", what_of(error));
  }
}

void StandbyHome::leave() noexcept {
  deaf_ = true;
  pace_.set_patience(kLeaving);
  try {
    // A try of the start may have claimed once more: only a word about the highest claim is heard.
    const AttemptNumber highest = claimed_ != 0 ? home_->highest() : 0;
    if (highest > claimed_ && home_->is_own(highest)) claimed_ = highest;
  } catch (const std::exception& error) {
    log_debug("standby: {}", what_of(error));
  }
  if (claimed_ != 0) say(RunPhase::interrupted, "this standby ended before it began", claimed_);
  try {
    home_->remove_note(kStandbyName);
  } catch (const std::exception& error) {  // the sign gets old by itself
    log_debug("standby: {}", what_of(error));
  }
  deaf_ = false;
}

}}}  // namespace holdfast::v0_2::internal
