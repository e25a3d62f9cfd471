#include <CLI/CLI.hpp>

#include "holdfast/base/error.h"
#include "holdfast/cli/child/front_process.h"
#include "holdfast/cli/commands.h"
#include "holdfast/cli/durations.h"
#include "holdfast/cli/mirror/mirror_process.h"
#include "holdfast/cli/supervise/supervise_options.h"

namespace holdfast { inline namespace v0_2 {

int run_supervise(const SuperviseRequest& options) {
  if (options.command.empty()) {
    throw UsageError(
        "no command given: put it last, after two dashes: holdfast supervise -- ./train --lr 0.1");
  }
  if (!options.on_complete.empty() && options.directory.empty()) {
    throw UsageError(
        "--on-complete needs --directory: only the run directory says whether a run is complete");
  }
  // Ignored in silence, the option would leave its user without the protection that it promises.
  if (!options.stall_timeout.empty() && options.directory.empty()) {
    throw UsageError("--stall-timeout needs --directory: the run's ledger there tells its steps");
  }
  if (options.standby && options.directory.empty()) {
    throw UsageError("--standby needs --directory: the run directory, which the holder of the run shares");
  }
  if (!options.takeover_after.empty()) {
    if (!options.standby) throw UsageError("--takeover-after is for --standby");
    // A trainer tells its step every 10 s.
    if (duration_of("--takeover-after", options.takeover_after) < std::chrono::seconds(30)) {
      throw UsageError("--takeover-after " + options.takeover_after +
                       ": at least 30s, because a trainer that lives gives a sign every 10 s only");
    }
  }
  if (options.mirror.empty()) return run_apart([&] { return Supervisor(options).run(); });
  if (options.directory.empty()) {
    throw UsageError("--mirror needs --directory: the run directory whose checkpoints go home");
  }
  // Before run_apart() forks: the front process starts the mirror again if it dies.
  MirrorProcess mirror({.directory = options.directory,
                        .home = options.mirror,
                        .home_keep = options.home_keep,
                        .home_mount = options.home_mount,
                        .limit = options.mirror_limit,
                        .supervised = true,
                        .standby = options.standby,
                        .home_wait = options.home_wait});
  return run_apart([&] { return Supervisor(options, &mirror).run(); },
                   [&](pid_t who) { return mirror.lives_after(who); });
}

namespace {

constexpr char kSuperviseFooter[] =
    R"(Restarts COMMAND after exit 75 (interrupted), a crash or an unknown code; for --retry-volume also after 74 (the volume).
Ends, and prints why, after 0 (complete), 64 (wrong options), 76 (superseded), 78 (refused) and 130 (second Ctrl-C).
After a notice that this machine ends within ten minutes, supervise waits before the next start.

Processes that COMMAND leaves behind, in any session, get SIGTERM and end before the next start. With --directory,
so does a trainer on this machine whose supervisor was killed.

Before it ends a COMMAND whose step stands still, it writes what the threads do into attempts/<n>.stall.txt of the run
directory, or into TMPDIR where that fails: stacks (eu-stack, gdb), waits, last records, GPU processes; 5 s and 1 MiB at most.

A trainer that cannot save, for a reason that cannot pass by itself, ends with 74 after an hour
(HOLDFAST_GIVE_UP_UNSAVED).

A trainer's --max-wall limits the sum of all its lives under this supervisor; HOLDFAST_SUPERVISED_SINCE tells them
when it began. After that time nothing is restarted (with --directory). A new supervise gives the run its full time
again, as `timeout` does.

With --requeue-slurm the job goes back to its queue after 75, but not after 0, 64, 76, 78 or 130, and not if somebody
cancelled it. HOLDFAST_DEADLINE_SIGNAL=USR1@120 makes Slurm's --signal=B:USR1@120 the announcement of the job's end.

Supervise passes on SIGTERM, SIGINT and SIGUSR1, each once, and SIGHUP, SIGUSR2 and SIGXCPU
(HOLDFAST_STOP_SIGNALS) as SIGTERM. After SIGTERM or SIGINT nothing is restarted. Supervise can be process 1 of a
container. If COMMAND is a shell script, it should `exec` its trainer. The reader of supervise's log may end before it.

With --directory, the run directory decides what an exit code means. Any end of a command whose attempt recorded an
interruption counts as 75, and the run is restarted. A run is complete only if its newest attempt began under this
supervisor. If another trainer has taken the run over, the code is 76.

The environment of --on-complete and --on-give-up has HOLDFAST_HOOK, HOLDFAST_RUN_DIRECTORY, HOLDFAST_STEP (the newest
committed one), HOLDFAST_EXIT_CODE, HOLDFAST_REASON and HOLDFAST_DEADLINE (UTC); an unknown value is empty.

Exit code: that of the last COMMAND, or 128 + N if signal N ended it. 70 if --on-complete failed, if COMMAND exited
with 0 but began no attempt or left one that did not end, or if its step stalled twice in a row. 75 if the run is
complete, but with --mirror its last checkpoint is not home.

A standby ends with 0 if the run is complete without it, and with the holder's code if nobody may go on (64, 76, 78).
After SIGTERM it ends with 75 within a second, and several ranks (COMMAND is `holdfast launch …`) within two. Once it has
taken over, it supervises as any other.

Example:
  holdfast supervise --directory /mnt/ckpt/run1 --on-complete ./cancel-fleet -- ./train --checkpoint-dir /mnt/ckpt/run1)";

}  // namespace

std::string refuse_empty(const std::string& value) {
  return value.empty() ? "is empty (a variable that is not set?)" : std::string();
}

void add_supervise_options(CLI::App& command, SuperviseRequest& request) {
  command
      .add_option("--on-complete", request.on_complete,
                  "shell command to run once the run is complete, such as cancelling the fleet. It runs "
                  "only if the trainer exits with 0 and the run directory says complete")
      ->type_name("CMD");
  command
      .add_option(
          "--on-give-up", request.on_give_up,
          "shell command to run if supervise ends without completion (64, 70, 74, 76, 78, 130, no restart or "
          "no time left, a Slurm job that could not be requeued): nothing restarts the run here, and the "
          "machine still costs money")
      ->type_name("CMD");
  command
      .add_option("--mirror", request.mirror,
                  "a safer place for the checkpoints: a directory on another volume, or rclone:REMOTE:PATH. "
                  "Before each start the newest checkpoint is fetched from there if the run directory lacks "
                  "it; beside COMMAND each new one is copied there and verified. Supervise ends once the "
                  "newest is there. Needs --directory")
      ->check(refuse_empty)
      ->type_name("HOME");
  command.add_option("--mirror-limit", request.mirror_limit, "most MB/s of these copies; 0: no limit")
      ->check(CLI::Range(0.0, 1e6))
      ->type_name("MB/s");
  add_home_keep(command, request.home_keep);
  command
      .add_option("--home-mount", request.home_mount,
                  "mount point of HOME's volume: a start waits until it is mounted")
      ->check(refuse_empty)
      ->type_name("DIR");
  add_home_wait(command, request.home_wait);
  add_time(command, "--hook-timeout", request.hook_timeout,
           "how long these two commands are retried, with growing delays, until they exit with 0");
  add_time(command, "--stall-timeout", request.stall_timeout,
           "if COMMAND's step does not change for this long, outside evaluations and pauses, COMMAND gets "
           "SIGTERM, later SIGKILL, and is restarted. After the second time in a row without progress, "
           "supervise ends. Needs --directory. Default: 20 times the 95th percentile of its steps, at least "
           "10 min; 0s: never");
  add_time(command, "--directory-timeout", request.directory_timeout,
           "how long to wait for a run directory that does not answer");
  command
      .add_option("--max-restarts", request.max_restarts,
                  "restarts in a row without progress before supervise ends. Progress is a newer committed "
                  "step; without --directory, 20 min of life")
      ->check(CLI::Range(0, 1'000'000))
      ->type_name("N")
      ->capture_default_str();
  add_time(command, "--first-delay", request.first_delay,
           "delay before the first restart; it doubles up to one minute while there is no progress");
  command.add_flag(
      "--requeue-slurm", request.requeue_slurm,
      "in a Slurm batch job: if COMMAND was told to stop, or its time is over, and the run is not "
      "complete, put this job back into its queue (scontrol requeue)");
  add_time(command, "--retry-volume", request.retry_volume,
           "how long COMMAND is restarted after the first 74 in a row, with the same delays, because a "
           "volume may be attached late; 0s: 74 is final");
  add_time(command, "--after-deadline", request.after_deadline,
           "how long after a notice's deadline this machine still counts as about to end; then COMMAND is "
           "restarted");
}

namespace {

void add_standby_options(CLI::App& command, SuperviseRequest& request) {
  command.add_flag("--standby", request.standby,
                   "be ready to go on with a run that another machine holds: start COMMAND now, and let its "
                   "resume() read ahead and wait. It claims nothing until the holder has ended as "
                   "interrupted or has given up. Needs --directory, shared with the holder; or on a disk of "
                   "its own, with the holder's --mirror (docs/standby.md)");
  command
      .add_option("--takeover-after", request.takeover_after,
                  "with --standby: also take over from a holder that has given no sign for this long, at "
                  "least 30s. Default: never; `holdfast takeover` tells a standby that the holder is "
                  "gone")
      ->type_name("TIME");
}

}  // namespace

void add_supervise(CLI::App& app, const std::vector<std::string>& wrapped, Command& chosen) {
  const auto options = std::make_shared<SuperviseRequest>();
  // CLI11 never saw these words: it would split an argument such as [1,2].
  options->command = wrapped;
  CLI::App* const command = app.add_subcommand(
      "supervise", "Run a trainer, and restart it after an interruption: supervise [OPTIONS] -- COMMAND...");
  command
      ->add_option("--directory", options->directory,
                   "the run directory: it tells whether the run is complete, whether it made progress, who "
                   "trains, and which notices came. With several hosts: only on rank 0's host")
      ->check(refuse_empty)
      ->type_name("DIR");
  add_supervise_options(*command, *options);
  add_standby_options(*command, *options);
  command->footer(kSuperviseFooter);
  command->callback([options, &chosen] { chosen = [options] { return run_supervise(*options); }; });
}

}}  // namespace holdfast::v0_2
