#include <CLI/CLI.hpp>

#include "holdfast/base/error.h"
#include "holdfast/cli/commands.h"
#include "holdfast/cli/durations.h"
#include "holdfast/cli/front_process.h"
#include "holdfast/cli/supervisor.h"

namespace holdfast { inline namespace v1 {
namespace {

int run_supervise(const SuperviseRequest& options) {
  if (options.command.empty()) {
    throw UsageError("which command? It goes last, after two dashes: holdfast supervise -- ./train --lr 0.1");
  }
  if (!options.on_complete.empty() && options.directory.empty()) {
    throw UsageError(
        "--on-complete needs --directory: only the run directory says whether a run is complete");
  }
  if (!options.stall_timeout.empty() && options.directory.empty()) {
    throw UsageError("--stall-timeout needs --directory: the run's ledger there tells its steps");
  }
  return run_apart([&] { return Supervisor(options).run(); });
}

}  // namespace

void add_supervise(CLI::App& app, const std::vector<std::string>& wrapped, Command& chosen) {
  const auto options = std::make_shared<SuperviseRequest>();
  options->command = wrapped;
  CLI::App* const command = app.add_subcommand(
      "supervise",
      "Run a trainer, and start it again when it was interrupted: supervise [OPTIONS] -- COMMAND...");
  command
      ->add_option("--directory", options->directory,
                   "the run directory: it says whether the run is complete, whether there was progress, who "
                   "trains, and which notices came. Of a run on several hosts: on rank 0's host alone")
      ->type_name("DIR");
  command
      ->add_option("--on-complete", options->on_complete,
                   "a shell command for the end of it all, such as cancelling the fleet: runs only when the "
                   "trainer exits with 0 and the run directory says complete")
      ->type_name("CMD");
  command
      ->add_option(
          "--on-give-up", options->on_give_up,
          "a shell command for an end without completion (64, 70, 74, 76, 78, 130, no restart or no time "
          "left): "
          "nobody starts the run again here, and the machine still costs money")
      ->type_name("CMD");
  add_time(*command, "--hook-timeout", options->hook_timeout,
           "so long the two commands are tried again, with growing delays, until they exit with 0");
  add_time(*command, "--stall-timeout", options->stall_timeout,
           "a COMMAND whose step stands still for so long, outside evaluations and pauses, gets "
           "SIGTERM, later SIGKILL, and starts again; twice in a row without progress is the end. "
           "Needs --directory. Default: 20 times the 95th percentile of its steps, 10 min at least; "
           "0s: never");
  add_time(*command, "--directory-timeout", options->directory_timeout,
           "so long it waits for a run directory that does not answer");
  command
      ->add_option("--max-restarts", options->max_restarts,
                   "so many restarts in a row without progress, then it stops (progress: a newer committed "
                   "step; without --directory, a life of 10 min)")
      ->check(CLI::Range(0, 1'000'000))
      ->type_name("N")
      ->capture_default_str();
  add_time(*command, "--first-delay", options->first_delay,
           "before the first restart; doubled, up to a minute, while there is no progress");
  add_time(*command, "--retry-volume", options->retry_volume,
           "so long after the first 74 in a row COMMAND is started again, with the same delays: a volume "
           "may come late; 0s: 74 is final");
  add_time(*command, "--after-deadline", options->after_deadline,
           "so long after the deadline of a notice this machine counts as alive");
  command->footer(
      "Starts COMMAND again after exit 75 (interrupted), crashes and unknown codes; for --retry-volume also "
      "after 74 (the\nvolume). Stops, and says why, after 0 (complete), 64 (wrong options), 76 (superseded), "
      "78 "
      "(refused) and 130\n(second Ctrl-C). After a notice that this machine goes away within ten minutes it "
      "waits: a machine "
      "that is about to die does not train.\nWhat COMMAND leaves behind, in whatever session, gets SIGTERM "
      "and ends before the next start. So does, with --directory, a trainer whose supervisor was killed on "
      "this "
      "machine.\n\n"
      "A trainer's --max-wall is the time of all its lives under this supervisor, whose start they are told "
      "in\nHOLDFAST_SUPERVISED_SINCE. Once that is over nothing starts again (with --directory). Whoever "
      "starts "
      "supervise again\ngives the run its time anew, as with timeout.\n\n"
      "SIGTERM, SIGINT and SIGUSR1 are passed on, each once; SIGHUP, SIGUSR2, "
      "SIGXCPU\n(HOLDFAST_STOP_SIGNALS) as SIGTERM. After SIGTERM or "
      "SIGINT nothing\nstarts again. Works as process 1 of a container. A COMMAND that is a shell script "
      "should `exec` its trainer.\n\n"
      "With --directory the run directory decides what an exit means: a 0 of an interrupted run is a 75 and "
      "starts again;\ncomplete is only a run whose newest attempt began under this supervisor; and where "
      "somebody else trains by now it\nis 76, whatever code a launcher made of it.\n\n"
      "--on-complete and --on-give-up get HOLDFAST_HOOK, HOLDFAST_RUN_DIRECTORY, HOLDFAST_STEP (the newest "
      "committed one),\nHOLDFAST_EXIT_CODE, HOLDFAST_REASON and HOLDFAST_DEADLINE (UTC) in their "
      "environment; "
      "empty where nothing is known.\n\n"
      "Exit code: the last COMMAND's, 128 + N when signal N ended it; 70 when --on-complete failed, or "
      "COMMAND said 0\nand began no attempt there, or one that did not end; 70 when\nits step stood still "
      "twice.\n\n"
      "Example:\n  holdfast supervise --directory /mnt/ckpt/run1 --on-complete ./cancel-fleet -- ./train "
      "--checkpoint-dir /mnt/ckpt/run1");
  command->callback([options, &chosen] { chosen = [options] { return run_supervise(*options); }; });
}

}}  // namespace holdfast::v1
