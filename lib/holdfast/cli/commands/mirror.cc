#include <signal.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/cli/commands.h"
#include "holdfast/cli/durations.h"
#include "holdfast/cli/mirror/mirror_run.h"
#include "holdfast/cli/output/json_output.h"
#include "holdfast/cli/supervise/run_account.h"
#include "holdfast/cli/supervise/supervise_options.h"
#include "holdfast/store/claim.h"
#include "holdfast/store/names.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr Duration kLongestStart = std::chrono::minutes(5);  // but for its fetch

constexpr char kMirrorFooter[] =
    R"(HOME is a directory on another volume, or rclone:REMOTE:PATH for any store that the program rclone speaks to
(S3, Google Cloud Storage, Azure Blob, SFTP, ...). A directory becomes a run directory: every command works there.

The newest checkpoint goes first; one that a newer one has overtaken is skipped. A copy counts once every byte of it
was read back. HOME keeps the newest --home-keep of them, never fewer than two. While HOME is full or away, the
mirror tries again and training goes on; `holdfast status DIR` shows it.

HOME belongs to one run on one machine at a time: the mirror claims it. It ends with 76 if another machine has
claimed it since. SIGTERM: the newest checkpoint may still get home, within HOLDFAST_TERM_GRACE.
One mirror serves a DIR: a second one on this machine is refused.

Exit code: 0: the newest checkpoint is home. 2: refused: another mirror on this machine brings DIR home; with --once
also: HOME or DIR is not there, or fails. 75: it was told to stop before, the newest checkpoint is damaged, or DIR has
gone. 76: another machine owns HOME.

Example:
  holdfast mirror /nvme/run1 --to /mnt/efs/run1)";

constexpr char kFetchFooter[] =
    R"(Run it before each start of a trainer whose DIR may be new or empty. It claims the next attempt in HOME, and fetches
the newest checkpoint that verifies if DIR lacks it. `holdfast supervise --mirror HOME` does it by itself, and fetch
is refused (2) while it runs, or while a trainer runs in DIR on this machine.

Example:
  holdfast fetch /nvme/run1 --from rclone:s3:bucket/run1)";

void add_home(CLI::App& command, const char* name, MirrorRequest& request) {
  command.add_option(name, request.home, "the safe place: a directory, or rclone:REMOTE:PATH")
      ->required()
      ->check(refuse_empty)
      ->type_name("HOME");
  command
      .add_option("--home-mount", request.home_mount,
                  "mount point of HOME's volume: nothing is claimed or copied until it is mounted")
      ->check(refuse_empty)
      ->type_name("DIR");
}

// A trainer that starts in DIR by itself (CheckpointerOptions::start.home) claims HOME, fetches, and then
// tells it in DIR.
bool a_start_goes_on_here(const MirrorRequest& request, MirrorRun& run) {
  if (request.once) return false;
  SteadyTime end = Clock::real().now() + kLongestStart;
  while (!run.copies().goes_on_here()) {
    const SteadyTime now = Clock::real().now();
    // A fetch takes as long as HOME needs for a whole checkpoint, which no fixed time covers.
    if (run.a_start_fetches()) end = now + kLongestStart;
    if (now >= end) return false;
    run.pace().wait(std::chrono::seconds(1));
  }
  return true;
}

int run_mirror(const MirrorRequest& request) {
  for (bool told_to_stop = false;;) {
    MirrorRun run(request);
    if (told_to_stop) raise(SIGTERM);  // blocked: the new run hears it
    try {
      return run.mirror();
    } catch (const SupersededError& error) {
      // The newer claim may be that of a start in DIR itself. Then this mirror goes on: one mirror serves
      // every life of a trainer.
      // A stop ends the wait with MirrorStopped (75) after its grace.
      log_info("{}; is it a start in {}?", error.what(), request.directory);
      // Otherwise the trainer would go on, and nothing of that would ever count at HOME.
      if (!request.once && !run.copies().goes_on_here()) run.end_trainer();
      if (a_start_goes_on_here(request, run)) {
        told_to_stop = run.told_to_stop();
        continue;
      }
      log_error(error.what());
      return static_cast<int>(ExitCode::superseded);
    }
  }
}

// The claims of a fetch would end that trainer with 76.
void check_nobody_trains(const std::filesystem::path& directory) {
  const auto run = FileSystem::real().open_directory(directory, false);
  const auto words = run ? attempt_words(*run, kHighestNumber) : std::vector<AttemptWord>{};
  if (words.empty() || !is_here(words.front().claimant) || !may_be_alive(words.front(), {})) return;
  throw RefusedError(directory.native() + ": attempt " + std::to_string(words.front().attempt) +
                     " trains there (process " + std::to_string(words.front().claimant.process.pid) +
                     "); a fetch belongs before a start. Nothing was changed");
}

int run_fetch(const MirrorRequest& request, bool json) {
  check_nobody_trains(request.directory);
  const PreparedStart start = MirrorRun(request).prepare();
  if (json) {
    nlohmann::ordered_json report{{"schema", kJsonSchema},
                                  {"attempt", start.attempt},
                                  {"fetched", start.fetched},
                                  {"claimed", !start.alone}};
    report["checkpoint"] = start.newest ? nlohmann::ordered_json(checkpoint_name(*start.newest)) : nullptr;
    print_json(report);
    return 0;
  }
  std::cout << "attempt " << start.attempt << (start.alone ? " is not claimed in " : " is claimed in ")
            << request.home << "; ";
  if (!start.newest) {
    std::cout << "there is no checkpoint: a fresh start\n";
  } else {
    std::cout << "step " << format_count(start.newest->step) << " of attempt " << start.newest->attempt
              << (start.fetched ? " was fetched\n" : " is here\n");
  }
  return 0;
}

}  // namespace

void add_home_keep(CLI::App& command, int& home_keep) {
  command.add_option("--home-keep", home_keep, "how many checkpoints HOME keeps, at least 2")
      ->check(CLI::Range(2, 1'000'000))
      ->type_name("N")
      ->capture_default_str();
}

void add_home_wait(CLI::App& command, std::string& home_wait) {
  add_time(
      command, "--home-wait", home_wait,
      "how long a start waits for a HOME that is away. After that, a good checkpoint in DIR lets the run go "
      "on alone; without one the start fails");
}

void add_mirror(CLI::App& app, Command& chosen) {
  const auto request = std::make_shared<MirrorRequest>();
  CLI::App* const command = app.add_subcommand(
      "mirror", "Copy the checkpoints of a run directory to a safer place, verified, as they come");
  command->add_option("DIR", request->directory, "the run directory")->required();
  add_home(*command, "--to", *request);
  command->add_flag("--once", request->once, "copy what is there, and end; do not try again after a failure");
  command->add_option("--limit", request->limit, "most MB/s that it copies; 0: no limit")
      ->check(CLI::Range(0.0, 1e6))
      ->type_name("MB/s");
  add_home_keep(*command, request->home_keep);
  command->footer(kMirrorFooter);
  command->callback([request, &chosen] { chosen = [request] { return run_mirror(*request); }; });
}

void add_fetch(CLI::App& app, Command& chosen) {
  const auto request = std::make_shared<MirrorRequest>();
  const auto json = std::make_shared<bool>(false);
  CLI::App* const command = app.add_subcommand(
      "fetch", "Bring the newest good checkpoint from HOME into a run directory that lacks it");
  command->add_option("DIR", request->directory, "the run directory")->required();
  add_home(*command, "--from", *request);
  add_home_wait(*command, request->home_wait);
  add_json(*command, *json);
  command->footer(kFetchFooter);
  command->callback(
      [request, json, &chosen] { chosen = [request, json] { return run_fetch(*request, *json); }; });
}

}}  // namespace holdfast::v0_2
