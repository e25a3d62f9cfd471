#include "holdfast/cli/mirror_run.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/interruption/term_grace.h"
#include "holdfast/mirror/rclone_home.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr int kVerifyThreads = 2;  // 8 MiB each
constexpr int kNiceness = 10;
constexpr int kOfThisProcess = 1;    // IOPRIO_WHO_PROCESS
constexpr int kIdleClass = 3 << 13;  // IOPRIO_CLASS_IDLE
constexpr Duration kLongestDelay = std::chrono::minutes(1);

}  // namespace

MirrorRun::MirrorRun(const MirrorRequest& request, std::function<void()> also)
    : request_(request),
      also_(std::move(also)),
      verifier_(kVerifyThreads),
      pace_(Clock::real(), request.limit, [this] { poll(); }),
      home_(open_home({.place = request.home, .keep = request.home_keep, .mount = request.home_mount},
                      FileSystem::real(), verifier_, pace_)),
      mirror_(FileSystem::real(), verifier_, *home_, {.directory = request.directory, .once = request.once},
              pace_) {
  verifier_.stop_keeping();
  if (!request.home.starts_with(kRclonePrefix) && request.home_mount.empty() &&
      FileSystem::real().on_root_file_system(request.home)) {
    log_warning("{} lies on the root file system: is its volume mounted? --home-mount makes sure of it",
                request.home);
  }
  work_quietly();
}

// The trainer and its saves come first. Best effort.
void MirrorRun::work_quietly() {
  setpriority(PRIO_PROCESS, 0, kNiceness);
  syscall(SYS_ioprio_set, kOfThisProcess, 0, kIdleClass);
}

void MirrorRun::poll() {
  while (const auto signal = inbox_.wait(Duration::zero())) {
    if (*signal != SIGTERM && *signal != SIGINT) continue;
    // Told twice: nothing more is brought home.
    if (end_) throw MirrorStopped();
    const Duration grace = term_grace().time;
    log_info("told to stop: the newest checkpoint may still get home, for {} at most",
             format_duration(grace));
    end_ = Clock::real().now() + grace;
    pace_.lift_limit();
    mirror_.finish();
  }
  if (end_ && Clock::real().now() >= *end_) throw MirrorStopped();
  if (also_) also_();
}

int MirrorRun::mirror() {
  try {
    mirror_.run();
  } catch (const MirrorStopped&) {
    log_warning("the newest checkpoint of {} is not home", request_.directory);
    return static_cast<int>(ExitCode::interrupted);
  }
  return 0;
}

PreparedStart MirrorRun::prepare() {
  bool said = false;
  for (Duration delay = std::chrono::seconds(1);; delay = std::min(kLongestDelay, delay * 2)) {
    try {
      PreparedStart start = prepare_start(FileSystem::real(), verifier_, request_.directory, *home_, pace_);
      mirror_.add_claims(start.claims);
      return start;
    } catch (const Error& error) {
      if (error.exit_code() != ExitCode::io_failed) throw;
      if (!std::exchange(said, true)) {
        log_warning("{}; tried again until it works, because nobody else may own the run meanwhile",
                    error.what());
      }
    }
    pace_.wait(delay);
  }
}

}}  // namespace holdfast::v0_2
