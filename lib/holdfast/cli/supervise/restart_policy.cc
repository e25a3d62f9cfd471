#include "holdfast/cli/supervise/restart_policy.h"

#include <algorithm>

#include "holdfast/base/exit_code.h"
#include "holdfast/base/text.h"

namespace holdfast { inline namespace v0_2 {
namespace {

bool ended_with(const Ending& ending, ExitCode code) {
  return ending.signal == 0 && ending.exit_code == static_cast<int>(code);
}

constexpr char kLookAtTheVolume[] =
    "the volume cannot be used, or the last save failed; acknowledged checkpoints are safe: check the "
    "volume, then start again";

// Why another start cannot go better; empty if it can.
const char* why_final(const Ending& ending) {
  if (ending.signal != 0) return "";
  switch (ending.exit_code) {
    case static_cast<int>(ExitCode::complete):
      return "the run is over";
    case static_cast<int>(ExitCode::usage):
      return "the program or its options must change: its last lines say how";
    case static_cast<int>(ExitCode::superseded):
      return "a newer attempt owns the run; this one must not start again";
    case static_cast<int>(ExitCode::refused):
      return "the resume was refused and would be again: its last lines say what to do";
    case static_cast<int>(ExitCode::forced):
      return "it was ended by hand";
    // As shells say it: 126 cannot be executed, 127 not found.
    case 126:
    case 127:
      return "there is nothing to start";
    default:
      return "";
  }
}

std::string what_ended(const Ending& ending) {
  if (ended_with(ending, ExitCode::interrupted)) return "exit 75 (interrupted, resumable)";
  if (ended_with(ending, ExitCode::io_failed)) return "exit 74 (the volume, or the last save)";
  if (ended_with(ending, ExitCode::complete)) return "exit 0 (the command says: complete)";
  if (ending.signal == SIGKILL) return "killed by SIGKILL (out of memory, perhaps)";
  return to_text(ending);
}

}  // namespace

Duration RestartPolicy::delay(int in_a_row) const {
  Duration delay = options_.first_delay;
  // Stops doubling at the limit, so no number of restarts overflows it.
  for (int i = 1; i < in_a_row && delay < options_.longest_delay; ++i) delay *= 2;
  return std::min(delay, options_.longest_delay);
}

RestartDecision RestartPolicy::after(const LifeFacts& life) {
  const std::string what = life.remark.empty() ? what_ended(life.ending) : life.remark;
  const auto stop = [&](const std::string& why, bool gave_up = true) {
    return RestartDecision{
        .gave_up = gave_up, .code = life.ending.code(), .text = what + ": " + why + "; not started again"};
  };
  if (const std::string why = why_final(life.ending); !why.empty()) {
    return ended_with(life.ending, ExitCode::complete) ? RestartDecision{.text = what} : stop(why);
  }
  if (life.asked_to_stop || life.time_is_over) {
    RestartDecision end = life.asked_to_stop
                              ? stop("it was asked to stop", false)
                              : stop("the time that the run may take (--max-wall, the job's) is over");
    end.resumable = true;
    return end;
  }
  const bool volume = ended_with(life.ending, ExitCode::io_failed);
  if (volume && options_.retry_volume == Duration::zero()) return stop(kLookAtTheVolume);
  if (options_.max_restarts == 0) return stop("--max-restarts 0");
  // A run that gets on may be interrupted any number of times: only restarts without progress are counted.
  if (life.progress) in_a_row_ = 0;
  // With progress between, it is the first time again.
  stalls_ = life.stood_still ? (life.progress ? 1 : stalls_ + 1) : 0;
  if (stalls_ >= 2) {
    RestartDecision end = stop("this is the second time in a row, without progress");
    // Its own code may be 75, and an outer wrapper would start it once more.
    end.code = static_cast<int>(ExitCode::internal);
    return end;
  }

  std::string count;
  // 74 has a limit of time, not of restarts: a volume that comes late is nobody's defect.
  RestartDecision verdict{.restart = true};
  if (volume) {
    // Progress shows that the volume worked meanwhile.
    if (life.progress || !volume_since_) {
      volume_since_ = life.ended;
      volume_in_a_row_ = 0;
    }
    if (life.ended - *volume_since_ >= options_.retry_volume) {
      return stop("for " + format_duration(life.ended - *volume_since_) + " " + kLookAtTheVolume);
    }
    verdict.delay = delay(++volume_in_a_row_);
    count = " (the volume is tried for " +
            format_duration(options_.retry_volume - (life.ended - *volume_since_)) + " more)";
  } else {
    volume_since_.reset();
    if (in_a_row_ >= options_.max_restarts) {
      return stop(std::to_string(in_a_row_) + (in_a_row_ == 1 ? " restart" : " restarts in a row") +
                  " brought no progress");
    }
    verdict.delay = delay(++in_a_row_);
    if (in_a_row_ > 1) {
      count = " (restart " + std::to_string(in_a_row_) + " of at most " +
              std::to_string(options_.max_restarts) + " without progress)";
    }
  }

  // A new attempt would take the run back from the standby. It is needed only if the machine lives on, and
  // the standby does not.
  if (life.handed_over) {
    verdict.delay =
        std::max(life.deadline_left.value_or(Duration::zero()), Duration::zero()) + options_.after_deadline;
    verdict.text = what + ": a standby goes on with the run; started again in " +
                   format_duration(verdict.delay) + " if none has by then";
    return verdict;
  }
  // On a machine that is about to end, a new attempt would only claim the run and hold the volume.
  const bool soon = life.deadline_left && *life.deadline_left < options_.near_deadline;
  if (soon && *life.deadline_left + options_.after_deadline > verdict.delay) {
    verdict.delay = *life.deadline_left + options_.after_deadline;
    verdict.text = what + ": a notice says that this machine goes away " +
                   (*life.deadline_left > Duration::zero() ? "in " + format_duration(*life.deadline_left)
                                                           : "about now") +
                   "; started again in " + format_duration(verdict.delay) + " if it still lives";
    return verdict;
  }
  verdict.text = what + "; started again in " + format_duration(verdict.delay) + count;
  return verdict;
}

}}  // namespace holdfast::v0_2
