#include "holdfast/cli/restart_policy.h"

#include <algorithm>

#include "holdfast/base/exit_code.h"
#include "holdfast/base/text.h"

namespace holdfast::inline v1 {
namespace {

bool ended_with(const Ending& ending, ExitCode code) {
  return ending.signal == 0 && ending.exit_code == static_cast<int>(code);
}

// Why no start could go better; empty: one could.
const char* why_final(const Ending& ending) {
  if (!ending.not_started.empty()) return "there is nothing to start";
  if (ending.signal != 0) return "";
  switch (ending.exit_code) {
    case static_cast<int>(ExitCode::complete):
      return "the run is over";
    case static_cast<int>(ExitCode::usage):
      return "wrong options stay wrong";
    case static_cast<int>(ExitCode::io_failed):
      return "the volume cannot be used, or the last save failed; what was acknowledged stands: look at the "
             "volume, then start again";
    case static_cast<int>(ExitCode::superseded):
      return "a newer attempt owns the run; this one must not start again";
    case static_cast<int>(ExitCode::refused):
      return "the resume was refused and would be again: its last lines say what to do";
    case static_cast<int>(ExitCode::forced):
      return "it was ended by hand";
    case 126:
    case 127:
      return "there is nothing to start";
    default:
      return "";
  }
}

std::string what_ended(const Ending& ending) {
  if (ended_with(ending, ExitCode::interrupted)) return "exit 75 (interrupted, resumable)";
  if (ended_with(ending, ExitCode::complete)) return "exit 0 (the command says: complete)";
  if (ending.signal == SIGKILL) return "killed by SIGKILL (out of memory, perhaps)";
  return to_text(ending);
}

}  // namespace

Duration RestartPolicy::delay() const {
  Duration delay = options_.first_delay;
  for (int i = 1; i < in_a_row_ && delay < options_.longest_delay; ++i) delay *= 2;
  return std::min(delay, options_.longest_delay);
}

RestartDecision RestartPolicy::after(const LifeFacts& life) {
  const std::string what = what_ended(life.ending);
  const auto stop = [&](const std::string& why) {
    return RestartDecision{.text = what + ": " + why + "; not started again"};
  };
  if (const std::string why = why_final(life.ending); !why.empty()) {
    return ended_with(life.ending, ExitCode::complete) ? RestartDecision{.text = what} : stop(why);
  }
  if (life.asked_to_stop) return stop("it was asked to stop");
  if (options_.max_restarts == 0) return stop("--max-restarts 0");
  if (life.progress) in_a_row_ = 0;
  if (in_a_row_ >= options_.max_restarts) {
    return stop(std::to_string(in_a_row_) + (in_a_row_ == 1 ? " restart" : " restarts in a row") +
                " brought no progress");
  }
  ++in_a_row_;

  RestartDecision verdict{.restart = true, .delay = delay()};
  const bool soon = life.deadline_left && *life.deadline_left < options_.near_deadline;
  if (soon && *life.deadline_left + options_.after_deadline > verdict.delay) {
    verdict.delay = *life.deadline_left + options_.after_deadline;
    verdict.text = what + ": a notice says that this machine goes away " +
                   (*life.deadline_left > Duration::zero() ? "in " + format_duration(*life.deadline_left)
                                                           : "about now") +
                   "; started again in " + format_duration(verdict.delay) + " if it still lives";
    return verdict;
  }
  verdict.text = what + "; started again in " + format_duration(verdict.delay);
  if (in_a_row_ > 1) {
    verdict.text += " (restart " + std::to_string(in_a_row_) + " of at most " +
                    std::to_string(options_.max_restarts) + " without progress)";
  }
  return verdict;
}

}  // namespace holdfast::inline v1
