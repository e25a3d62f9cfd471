#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/base/env.h"
#include "holdfast/base/error.h"
#include "holdfast/base/hook_context.h"
#include "holdfast/base/log.h"
#include "holdfast/base/utf8.h"
#include "holdfast/cli/child/attended_child.h"
#include "holdfast/cli/child/limited_read.h"
#include "holdfast/cli/commands.h"
#include "holdfast/cli/durations.h"
#include "holdfast/cli/report/status_report.h"
#include "holdfast/cli/run/run_view.h"
#include "holdfast/cli/supervise/end_hook.h"
#include "holdfast/cli/supervise/slurm_job.h"
#include "holdfast/cli/supervise/supervise_options.h"
#include "holdfast/cli/sweep/local_sweep.h"
#include "holdfast/cli/sweep/sweep_file.h"
#include "holdfast/cli/sweep/visible_gpus.h"
#include "holdfast/io/file_system.h"
#include "holdfast/io/volume_probe.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using namespace std::chrono_literals;

constexpr Duration kPatienceWithRoot = 10s;

struct SweepRequest {
  std::filesystem::path file;
  std::optional<std::int64_t> index;
  std::filesystem::path root;
  std::filesystem::path mount;
  bool list = false;
  std::size_t local = 0;  // 0: no
  bool again = false;
  SuperviseRequest supervise;  // directory, command and mirror with their braces
  // Those of supervise's options that were given, as words of a command.
  std::function<std::vector<std::string>(const SuperviseRequest&)> words;
};

struct Experiment {
  SweepRun run;
  SuperviseRequest request;
};

std::string quoted_for_shell(const std::string& word) {
  const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("@%+=:,./_-").find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (plain) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string(R"('\'')") : std::string(1, c);
  return text + "'";
}

std::vector<Experiment> experiments_of(const SweepRequest& options) {
  std::vector<Experiment> all;
  std::map<std::string, std::string> homes;  // and whose they are
  for (SweepRun& run : read_sweep(options.file).runs) {
    Experiment& one = all.emplace_back(Experiment{.run = std::move(run), .request = options.supervise});
    one.request.directory = options.root / one.run.name;
    const auto fill = [&one](std::string& text) { text = fill_in(text, one.run, one.request.directory); };
    for (std::string& word : one.request.command) fill(word);
    if (one.request.mirror.empty()) continue;
    fill(one.request.mirror);
    if (const auto [other, fresh] = homes.emplace(one.request.mirror, one.run.place); !fresh) {
      throw UsageError(one.run.place + ": --mirror has the HOME of " + other->second +
                       ", and one HOME holds one run: write {name} into it");
    }
  }
  return all;
}

// Which run this task of an array job is.
std::size_t index_of(const SweepRequest& options, std::size_t runs) {
  std::string source;
  std::string names;
  std::optional<std::int64_t> index = options.index;
  if (index) source = "--index " + std::to_string(*index);
  for (const EnvVariable& variable :
       {kEnvSlurmArrayTask, kEnvBatchArrayIndex, kEnvJobCompletionIndex, kEnvSkyPilotJobRank}) {
    names += (names.empty() ? "" : ", ") + std::string(variable.name);
    if (options.index) continue;
    const auto told = env_int(variable, 0, std::numeric_limits<std::int64_t>::max());
    if (!told) continue;
    const std::string says = std::string(variable.name) + "=" + std::to_string(*told);
    if (index && *index != *told) {
      throw UsageError(source + " and " + says + " differ: choose the run with --index");
    }
    index = told;
    source = says;
  }
  if (!index) {
    throw UsageError("which run? Give --index, --local or --list; no engine has set one of " + names);
  }
  if (*index < 0 || static_cast<std::uint64_t>(*index) >= runs) {
    throw UsageError(source + " is beyond " + printable(options.file.filename().string(), 200) +
                     ", which ends at line " + std::to_string(runs) + ": its runs are 0 to " +
                     std::to_string(runs - 1));
  }
  return static_cast<std::size_t>(*index);
}

void check_volume(const SweepRequest& options, const Experiment& one) {
  if (options.mount.empty()) return;
  try {
    check_beneath_mount(one.request.directory, options.mount);
  } catch (const UsageError& error) {
    throw UsageError(one.run.place + ": " + error.what());
  }
}

// What supervise does for a run that it has begun: the engine starts nothing again by an exit code alone.
int end_without_volume(const Experiment& one, int code, std::string reason, SignalInbox& inbox) {
  const SuperviseRequest& request = one.request;
  const auto context = [&](const char* hook) {
    return HookContext{
        .hook = hook, .directory = request.directory.string(), .exit_code = code, .reason = reason};
  };
  if (code == static_cast<int>(ExitCode::interrupted)) {
    if (!request.requeue_slurm) return code;
    const SlurmJob job = this_slurm_job();
    if (requeue(job, context("requeue-slurm"), inbox)) return code;
    reason = "Slurm job " + job.name + " could not be requeued";
  }
  if (request.on_give_up.empty()) return code;
  log_info("giving up; running --on-give-up");
  run_end_hook(request.on_give_up, context("on-give-up"),
               {.limit = duration_of("--hook-timeout", request.hook_timeout),
                .first_delay = duration_of("--first-delay", request.first_delay)},
               inbox);
  return code;
}

// The exit code if the volume does not come, or somebody stops the wait.
std::optional<int> wait_for_volume(const SweepRequest& options, const std::vector<Experiment>& all) {
  if (options.mount.empty()) return std::nullopt;
  // Outside a Slurm job it is refused now.
  if (options.local == 0 && options.supervise.requeue_slurm) this_slurm_job();
  SignalInbox inbox;
  const auto end = [&](ExitCode code, const std::string& reason) {
    const int number = static_cast<int>(code);
    return options.local > 0 ? number : end_without_volume(all.front(), number, reason, inbox);
  };
  const MountWait waited =
      wait_for_mount(FileSystem::real(), Clock::real(), options.mount, {.go_on = [&inbox](Duration) {
                       const auto signal = inbox.wait(0s);
                       return !signal || (*signal != SIGTERM && *signal != SIGINT);
                     }});
  if (waited == MountWait::mounted) return std::nullopt;
  if (waited == MountWait::stopped) return end(ExitCode::interrupted, "told to stop");
  log_error("{} is not mounted; attach the volume and start again", options.mount);
  return end(ExitCode::io_failed, options.mount.string() + " is not mounted");
}

// Nothing is left to do for it: its hook would otherwise not run, or its last checkpoint not come home.
bool is_done(const Experiment& one) {
  try {
    const RunView view = look_at_run(one.request.directory);
    if (status_report(view, {}).at("verdict") != "complete") return false;
    const bool home =
        one.request.mirror.empty() || (view.home && view.home->newest && view.newest.state &&
                                       view.home->newest->step >= view.newest.state->durable_step);
    return home && one.request.on_complete.empty();
  } catch (const Error&) {
    // It is not there yet, or supervise tells why it cannot be read.
    return false;
  }
}

// A complete run is not started again. In one read of the volume, which may hang.
std::vector<bool> which_are_done(const SweepRequest& options, const std::vector<Experiment>& all) {
  std::vector<bool> done(all.size(), false);
  if (options.again) return done;
  LimitedRead reading;
  const auto text = reading.run(kPatienceWithRoot, [&all] {
    std::string marks;
    for (const Experiment& one : all) marks += is_done(one) ? '1' : '0';
    return marks;
  });
  if (!text) log_warning("{} does not answer; complete runs are started, too", options.root);
  for (std::size_t i = 0; text && i < std::min(text->size(), done.size()); ++i) done[i] = (*text)[i] == '1';
  for (std::size_t i = 0; i < done.size(); ++i) {
    if (done[i]) log_info("{} is complete; not started (--again starts it)", all[i].run.name);
  }
  return done;
}

std::vector<std::string> supervise_command(const SweepRequest& options, const Experiment& one,
                                           const std::string& program) {
  std::vector<std::string> words{program, "supervise", "--directory", one.request.directory.native()};
  for (const std::string& word : options.words(one.request)) words.push_back(word);
  words.emplace_back("--");
  words.insert(words.end(), one.request.command.begin(), one.request.command.end());
  return words;
}

int list_commands(const SweepRequest& options, const std::vector<Experiment>& all) {
  for (const Experiment& one : all) {
    std::string line;
    for (const std::string& word : supervise_command(options, one, "holdfast")) {
      line += (line.empty() ? "" : " ") + quoted_for_shell(word);
    }
    std::cout << line << '\n';
  }
  return 0;
}

int run_here(const SweepRequest& options, const std::vector<Experiment>& all) {
  if (options.supervise.requeue_slurm) {
    throw UsageError("--requeue-slurm is for one run a job: with --local, every run would requeue this job");
  }
  const auto gpus = shares_of_gpus(visible_gpus(), std::min(options.local, all.size()));
  const std::vector<bool> done = which_are_done(options, all);
  std::vector<LocalRun> runs;
  for (std::size_t i = 0; i < all.size(); ++i) {
    // This very program, even if an update replaces its file while the sweep runs.
    LocalRun run{.name = all[i].run.name, .command = supervise_command(options, all[i], "/proc/self/exe")};
    if (done[i]) run.code = 0;
    runs.push_back(std::move(run));
  }
  return run_locally(runs, gpus, std::min(options.local, all.size()));
}

int run_sweep(const SweepRequest& options) {
  if (options.supervise.command.empty()) {
    throw UsageError(
        "no command given: put it last, after two dashes: holdfast sweep runs.jsonl --root /mnt/ckpt -- "
        "./train --lr {lr} --checkpoint-dir {run_dir}");
  }
  std::vector<Experiment> all = experiments_of(options);
  if (options.list) {
    for (const Experiment& one : all) check_volume(options, one);
    return list_commands(options, all);
  }
  if (options.local == 0) {
    Experiment chosen = std::move(all.at(index_of(options, all.size())));
    all.clear();
    all.push_back(std::move(chosen));
  }
  if (const auto code = wait_for_volume(options, all)) return *code;
  // After the wait, because links on the volume are visible only then.
  for (const Experiment& one : all) check_volume(options, one);
  if (options.local > 0) return run_here(options, all);
  if (which_are_done(options, all).front()) return 0;
  log_info("{}: the run {}", all.front().run.place, all.front().run.name);
  return run_supervise(all.front().request);
}

constexpr char kSweepFooter[] =
    R"(FILE has a line a run, from run 0 on, without comments and empty lines:
  {"name": "lr03", "lr": 0.3, "seed": 1}

In COMMAND and in the HOME of --mirror, {lr} becomes the value of lr in the run's line. {run_dir} becomes the run
directory DIR/name; {{ and }} are braces. The other options are those of supervise, which runs COMMAND with
--directory DIR/name. A complete run is not started again, except with --on-complete, or if its last checkpoint is not
in HOME.

Without --index, the run is that of SLURM_ARRAY_TASK_ID, AWS_BATCH_JOB_ARRAY_INDEX, JOB_COMPLETION_INDEX (Kubernetes)
or SKYPILOT_JOB_RANK.

With --local, signals reach every run, and each has its own time to commit. The GPUs and MIG slices of this machine,
or those of CUDA_VISIBLE_DEVICES, are divided equally; a run sees one slice at most. Each line of output has the name
of its run in front.

Exit code: that of supervise; 64 for a wrong file, index or option; 74 if the volume of --mount does not come. With
--local: 0 if all runs are complete; 130 after a second Ctrl-C; 75 if a run is resumable or was not started; otherwise
the code of the first run in FILE that failed. A run that fails does not stop the others.

Examples:
  holdfast sweep runs.jsonl --root /mnt/ckpt --local 2 -- ./train --lr {lr} --checkpoint-dir {run_dir}
  holdfast sweep runs.jsonl --root /mnt/ckpt --index 3 -- ./train --lr {lr} --checkpoint-dir {run_dir}
  holdfast status --all /mnt/ckpt)";

// The options of `command` that were given. `mirror` differs from run to run.
std::vector<std::string> given_options(const std::vector<const CLI::Option*>& known,
                                       const std::string& mirror) {
  std::vector<std::string> words;
  for (const CLI::Option* option : known) {
    if (option->count() == 0) continue;
    words.push_back(option->get_name());
    if (option->get_items_expected_max() == 0) continue;
    words.push_back(option->get_name() == "--mirror" ? mirror : option->results().back());
  }
  return words;
}

}  // namespace

void add_sweep(CLI::App& app, const std::vector<std::string>& wrapped, Command& chosen) {
  const auto options = std::make_shared<SweepRequest>();
  options->supervise.command = wrapped;
  CLI::App* const command = app.add_subcommand(
      "sweep", "Run the experiments of a file, each under supervise: sweep FILE [OPTIONS] -- COMMAND...");
  command->add_option("FILE", options->file, "the experiments, one JSON object a line")->required();
  command->add_option("--root", options->root, "the run directories are DIR/name")
      ->required()
      ->check(refuse_empty)
      ->type_name("DIR");
  CLI::Option* const index =
      command->add_option("--index", options->index, "run this one, from 0 (default: as the engine says)")
          ->type_name("N");
  CLI::Option* const list = command->add_flag(
      "--list", options->list, "print the command of each run, quoted for a shell, and start nothing");
  command
      ->add_option("--local", options->local,
                   "run all of them here, K at a time, in the order of the file, each with GPUs of its own")
      ->check(CLI::Range(1, 1000))
      ->type_name("K")
      ->excludes(index)
      ->excludes(list);
  list->excludes(index);
  command
      ->add_option("--mount", options->mount,
                   "mount point of the volume on which DIR lies: wait until it is mounted, at most 10 min, "
                   "and refuse a run directory that lies elsewhere")
      ->check(refuse_empty)
      ->type_name("DIR");
  command->add_flag("--again", options->again,
                    "start complete runs, too: their command may now name a later final step");
  const std::size_t own = command->get_options().size();
  add_supervise_options(*command, options->supervise);
  options->words = [own, command](const SuperviseRequest& request) {
    const auto all = std::as_const(*command).get_options();
    return given_options({all.begin() + static_cast<std::ptrdiff_t>(own), all.end()}, request.mirror);
  };
  command->footer(kSweepFooter);
  command->callback([options, &chosen] { chosen = [options] { return run_sweep(*options); }; });
}

}}  // namespace holdfast::v0_2
