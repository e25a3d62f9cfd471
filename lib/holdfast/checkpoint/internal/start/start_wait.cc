#include "holdfast/checkpoint/internal/start/start_wait.h"

#include <cerrno>
#include <utility>

#include "holdfast/base/env.h"
#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/interruption/required_sight.h"
#include "holdfast/interruption/sources.h"
#include "holdfast/io/volume_probe.h"
#include "holdfast/mirror/home_record.h"
#include "holdfast/mirror/start.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

StartWait::StartWait(Run& run)
    : run_(run), required_(required_sources(run.options.notices.require_sources)) {}

void StartWait::await_sight() {
  holdfast::await_sight(run_.monitor, required_, [this] { return !run_.start_must_end(); });
  if (!required_.empty() && run_.start_must_end()) {
    throw Error("interrupted (" + run_.monitor.reason() + ") before the run began; nothing was begun",
                static_cast<ExitCode>(run_.options.notices.exit_code_interrupted));
  }
}

void StartWait::await_volume() {
  const CheckpointerOptions& options = run_.options;
  if (options.mount.empty()) {
    // The root disk usually ends with the machine, and the checkpoints with it.
    const auto warning = root_file_system_warning(run_.file_system, options.directory);
    if (warning && !std::exchange(warned_, true)) log_warning(*warning);
    return;
  }
  const MountWait outcome = wait_for_mount(
      run_.file_system, run_.clock, options.mount,
      {.limit = options.start.mount_wait, .go_on = [this](Duration) { return !run_.start_must_end(); }});
  if (outcome == MountWait::stopped) {
    throw Error("interrupted (" + run_.monitor.reason() + ") while waiting for " + options.mount.native() +
                    "; nothing was begun",
                static_cast<ExitCode>(options.notices.exit_code_interrupted));
  }
  if (outcome == MountWait::timed_out) {
    throw IoError("mount", options.mount.native(), ENODEV,
                  "no volume was mounted there within " + format_duration(options.start.mount_wait) +
                      "; attach it and start again");
  }
  check_beneath_mount(options.directory, options.mount);  // again: links are visible only now
}

void StartWait::await_home() {
  const CheckpointerOptions& options = run_.options;
  if (const auto prepared = env_text(kEnvMirrorHome); prepared && !options.start.home.empty()) {
    log_info("home {}: `holdfast supervise --mirror {}` has prepared {}", options.start.home, *prepared,
             asks_home() ? "another run, so this run asks its own home" : "this start");
  }
  if (!asks_home()) return;
  holdfast::Pace pace = this->pace();
  const auto home = open(pace);
  prepare_start_or_go_alone(run_.file_system, run_.verifier, options.directory, *home, pace,
                            options.start.home_wait,
                            {.mount = options.mount, .only_ours = !options.start.trust_directory});
}

bool StartWait::asks_home() const {
  if (run_.options.start.home.empty()) return false;
  const auto prepared = env_text(kEnvMirrorHome);
  return !prepared || !is_prepared_by(*prepared);
}

// `holdfast::Pace`, because the heartbeat has a Pace as well.
holdfast::Pace StartWait::pace() const {
  return holdfast::Pace(run_.clock, 0, [this] {
    if (!run_.start_must_end()) return;
    throw Error("interrupted (" + run_.monitor.reason() + ") while the start waited for " +
                    run_.options.start.home + "; nothing was begun",
                static_cast<ExitCode>(run_.options.notices.exit_code_interrupted));
  });
}

std::unique_ptr<Home> StartWait::open(holdfast::Pace& pace) const {
  return open_home({.place = run_.options.start.home, .mount = run_.options.start.home_mount},
                   run_.file_system, run_.verifier, pace);
}

// A wrapped script may start other runs as well, and each process inherits the variable.
bool StartWait::is_prepared_by(const std::string& supervisors_home) const {
  const std::string prepared = without_slashes(supervisors_home);
  if (without_slashes(run_.options.start.home) == prepared) return true;
  // The two may name one place in different words, such as by a relative path. The supervisor's words stand
  // in the run directory that it has prepared.
  const auto directory = run_.file_system.open_directory(run_.options.directory, false);
  const auto record = directory ? read_home_record(*directory) : std::nullopt;
  return record && record->home == prepared;
}

void StartWait::check_mounted() const {
  const auto& mount = run_.options.mount;
  if (mount.empty() || run_.file_system.is_mount_point(mount)) return;
  throw IoError("mount", mount.native(), ENODEV,
                "the volume went away during the start; attach it and start again");
}

}}}  // namespace holdfast::v0_2::internal
