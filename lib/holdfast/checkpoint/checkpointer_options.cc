#include "holdfast/checkpoint/checkpointer_options.h"

#include <cmath>
#include <string>

#include "holdfast/base/error.h"
#include "holdfast/base/text.h"
#include "holdfast/io/volume_probe.h"
#include "holdfast/mirror/home.h"
#include "holdfast/mirror/pace.h"
#include "holdfast/writing/file_verifier.h"

namespace holdfast { inline namespace v0_2 {

namespace {

void check_home(const CheckpointerOptions& options) {
  // Opened and thrown away: opening refuses a malformed place, and contacts nothing.
  FileVerifier verifier;
  Pace pace(Clock::real());
  open_home({.place = options.start.home, .mount = options.start.home_mount}, FileSystem::real(), verifier,
            pace);
  if (options.directory.lexically_normal() == std::filesystem::path(options.start.home).lexically_normal()) {
    throw UsageError("home and directory are the same (" + options.start.home +
                     "): the second copy belongs on another volume");
  }
}

}  // namespace

void CheckpointerOptions::check() const {
  if (directory.empty()) throw UsageError("no checkpoint directory given");
  keep.check();
  if (!start.resume_from.empty() && !start.init_from.empty()) {
    throw UsageError(
        "resume_from and init_from contradict each other: continue that run, or take its weights");
  }
  if (writing.threads < 1 || writing.threads > 64) {
    throw UsageError("writer_threads is " + std::to_string(writing.threads) + "; 2 to 4 fill a disk");
  }
  // Negated, so that NaN is refused as well.
  if (!(writing.write_limit >= 0) || std::isinf(writing.write_limit)) {
    throw UsageError("write_limit is " + format_number(writing.write_limit) +
                     "; give MB/s such as 200, or 0 for no limit");
  }
  if (writing.give_up_unsaved && *writing.give_up_unsaved < Duration::zero()) {
    throw UsageError("give_up_unsaved is negative; give for instance 1h, or 0 for never");
  }
  if (start.mount_wait < std::chrono::seconds(0)) throw UsageError("mount_wait is negative");
  if (start.home_wait < std::chrono::seconds(0)) throw UsageError("home_wait is negative");
  if (!start.home.empty()) check_home(*this);
  if (notices.term_grace && *notices.term_grace <= Duration::zero())
    throw UsageError("term_grace is not positive; without it, it is 25 s, and 10 s in a container");
  // A parent sees the lowest eight bits of an exit code alone.
  if (notices.exit_code_interrupted < 0 || notices.exit_code_interrupted > 255) {
    throw UsageError("exit_code_interrupted is " + std::to_string(notices.exit_code_interrupted) +
                     "; exit codes go from 0 to 255");
  }
  if (notices.on_notice == OnNotice::callback && !notices.decide) {
    throw UsageError("on_notice is callback, and there is no function to decide");
  }
  if (notices.deaf_after <= Duration::zero()) throw UsageError("deaf_after is not positive");
  if (notices.blind_after <= Duration::zero()) throw UsageError("blind_after is not positive");
  // StartWait checks it again after the wait for the mount, because links in the volume are visible only
  // then.
  if (!mount.empty()) check_beneath_mount(directory, mount);
}

}}  // namespace holdfast::v0_2
