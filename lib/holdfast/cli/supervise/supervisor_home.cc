// A supervisor's second place: what it asks of its mirror before a life of the trainer, and after it.
#include <algorithm>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/base/utf8.h"
#include "holdfast/cli/durations.h"
#include "holdfast/cli/files/examine.h"
#include "holdfast/cli/mirror/mirror_process.h"
#include "holdfast/cli/supervise/supervisor.h"

namespace holdfast { inline namespace v0_2 {

using namespace std::chrono_literals;

// The exit code, if no trainer may start. Handles signals meanwhile.
std::optional<int> Supervisor::prepare() {
  if (mirror_ == nullptr) return std::nullopt;
  mirror_->ask_for_start();
  const Duration limit = std::max(duration_of("--home-wait", options_.home_wait), directory_timeout_);
  bool said = false;
  for (;;) {
    const Duration stood = mirror_->stands_still();
    if (stood >= 2 * kNormalAnswer && !std::exchange(said, true)) {
      log_info("waiting for {} to answer, for {} at most", printable(options_.mirror, 4096),
               format_duration(limit));
    }
    if (stood >= limit) {
      log_warning("{} does not answer (a mount whose server is gone?)", printable(options_.mirror, 4096));
      mirror_->do_without_home();
    }
    if (const auto answer = mirror_->answer()) {
      if (answer->code == 0) return std::nullopt;
      log_error(answer->text);
      return give_up(answer->code, answer->text);
    }
    // No signal tells that an answer has come, so it is asked for often.
    heard(inbox_.wait(20ms), nullptr);
    if (asked_to_stop_) return end(static_cast<int>(ExitCode::interrupted), true);
  }
}

// Stays until the newest checkpoint is home; after a stop, only for the rest of the grace period. 0: it is
// home, or there is no mirror. Otherwise the exit code of a run whose newest checkpoint is not home.
int Supervisor::bring_home() {
  constexpr int kTakenOver = static_cast<int>(ExitCode::superseded);
  if (mirror_ == nullptr) return 0;
  if (!mirror_->superseded_by().empty()) return kTakenOver;
  mirror_->ask_for_end();
  const int stops = stops_;
  const SteadyTime began = Clock::real().now();
  bool said = false;
  for (;;) {
    if (const auto answer = mirror_->answer()) {
      if (answer->code != 0) log_error(answer->text);
      return answer->code;
    }
    const SteadyTime now = Clock::real().now();
    const bool late = first_stop_ && now >= *first_stop_ + time_to_leave();
    // The first stop leaves the copy the rest of the grace period. One more ends the wait at once.
    if (late || stops_ > std::max(stops, 1) || !mirror_->superseded_by().empty()) break;
    if (now >= began + kNormalAnswer && !std::exchange(said, true)) {
      log_info("waiting until the newest checkpoint is home in {}", printable(options_.mirror, 4096));
    }
    heard(inbox_.wait(20ms), nullptr);
  }
  log_warning("the newest checkpoint is not home in {}; {} holds it", printable(options_.mirror, 4096),
              shown(options_.directory));
  return mirror_->superseded_by().empty() ? static_cast<int>(ExitCode::interrupted) : kTakenOver;
}

}}  // namespace holdfast::v0_2
