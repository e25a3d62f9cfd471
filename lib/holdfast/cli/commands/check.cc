#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <sstream>
#include <utility>

#include "holdfast/base/env.h"
#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/base/utf8.h"
#include "holdfast/cli/child/attended_child.h"
#include "holdfast/cli/child/started_process.h"
#include "holdfast/cli/commands.h"
#include "holdfast/cli/durations.h"
#include "holdfast/cli/trial/left_file.h"
#include "holdfast/cli/trial/trial_story.h"

namespace holdfast { inline namespace v0_2 {
namespace {

struct CheckRequest {
  std::vector<std::string> command;
  std::int64_t steps = 0;  // 0: the straight life decides
  std::size_t kills = 8;
  bool standard_output = false;
  std::string file;  // that the program leaves; empty: none
  std::string stall_timeout = "10min";
};

constexpr std::int64_t kFewestSteps = 4;
constexpr std::string_view kDoubt = "the training state may be incomplete: ";

constexpr char kUsualCauses[] =
    R"(usual causes:
  a model, an optimizer, an average of weights or the data that was never added to the state
  a local variable that decides the next step (a rate, a hidden state, a counter)
  a random engine of the program's own, or random numbers drawn after after_step()
  an order that differs from run to run
  a best value and what belongs to it, where a file of the program differs
  rows of a file beside the run that were written over after the checkpoint (docs/large_buffers.md)
  gradients that outlive after_step() (an optimizer that updates with those of several steps)
)";

// The trial's checkpoints go there (checkpoint/internal/trial.h), never into the program's own run directory.
class TrialFolder {
 public:
  TrialFolder() {
    path_ = (std::filesystem::path(env_text(kEnvTmpDir).value_or("/tmp")) / "holdfast-check-XXXXXX").string();
    if (::mkdtemp(path_.data()) == nullptr) {
      throw IoError("make a folder", path_, errno, "TMPDIR names another place");
    }
  }
  ~TrialFolder() {
    std::error_code ignored;
    // Best effort: a folder that stays behind costs room, and the verdict is known already.
    std::filesystem::remove_all(path_, ignored);
  }
  TrialFolder(const TrialFolder&) = delete;
  TrialFolder& operator=(const TrialFolder&) = delete;
  std::filesystem::path path() const { return path_; }

 private:
  std::string path_;
};

std::string all_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string last_lines(const std::string& text) {
  std::size_t begin = text.size();
  for (int lines = 0; begin > 0 && lines <= 5; --begin) lines += text[begin - 1] == '\n' ? 1 : 0;
  return text.substr(begin);
}

// A person or a machine ended the check.
struct Cancelled {
  int signal = 0;
};

// Lines of the log that name what was probably forgotten (TrainState::doubts()).
std::string doubts_in(const std::string& log) {
  std::istringstream lines(log);
  std::string line, found;
  while (std::getline(lines, line)) {
    const auto at = line.find(kDoubt);
    if (at != std::string::npos) found += "  " + line.substr(at + kDoubt.size()) + '\n';
  }
  return found.empty() ? found : "the program's own warnings at its first save:\n" + found;
}

class Check {
 public:
  explicit Check(const CheckRequest& request)
      : request_(request), stall_timeout_(duration_of("--stall-timeout", request.stall_timeout)) {
    if (stall_timeout_ <= Duration::zero()) throw UsageError("--stall-timeout must be longer than 0");
  }

  int run() {
    try {
      return prove();
    } catch (const Cancelled& by) {
      log_error("cancelled by {}; nothing is proven", signal_name(by.signal));
      return 128 + by.signal;
    }
  }

 private:
  int prove() {
    if (!request_.file.empty()) file_.emplace(folder_.path(), request_.file);
    begin_anew();
    const TrialLife straight = live("straight", {.stop_at = request_.steps}, false);
    require_something(straight);
    // Read now, because the next life overwrites the file.
    doubts_ = doubts_in(all_of(folder_.path() / "err"));
    const std::string left = left_by_straight();
    const std::int64_t last = straight.steps.back().step;
    // A program that came to its end by itself does so again, and leaves what it leaves there.
    const std::int64_t stop_at = straight.steps.back().stops ? last : last + 1;
    const auto moments = moments_of(straight, request_.kills);
    std::int64_t latest = 0;
    // A kill, not a stop: a program that saves before it leaves computes no step again, so nothing could be
    // compared.
    for (const TrialMoment& moment : moments) {
      // Each trial begins without a checkpoint, so that nothing of the one before helps it.
      begin_anew();
      live("killed " + moment.name, {.stop_at = last, .save_at = moment.save_at, .kill_at = moment.kill_at},
           true);
      const TrialLife resumed =
          live("resumed from step " + format_count(moment.save_at), {.stop_at = stop_at}, false);
      std::string found = difference(straight, resumed, moment.save_at, request_.standard_output);
      // What was never added often ends a resumed life: a size that does not fit, an undefined tensor.
      if (!resumed.failure.empty()) found += "\n  the resumed life " + resumed.failure;
      if (found.empty() && file_) found = difference_of_files(request_.file, left, file_->content());
      if (!found.empty()) return refuse(moment, found);
      latest = std::max(latest, moment.save_at);
      std::cout << "killed " << printable(moment.name) << ", after step " << format_count(moment.kill_at)
                << "; resumed from step " << format_count(moment.save_at) << ": "
                << format_count(last - moment.save_at) << " steps computed again, bit-identical\n";
    }
    say_unseen(straight);
    std::cout << doubts_ << "PROVEN for steps " << format_count(straight.steps.front().step) << " to "
              << format_count(last) << "; latest resume at " << format_count(latest)
              << "; nothing is said about what begins later\n";
    return static_cast<int>(ExitCode::complete);
  }

  void begin_anew() const {
    begin_trial_anew(folder_.path());
    if (file_) file_->begin_anew();
  }

  std::string left_by_straight() const {
    if (!file_) return {};
    if (auto content = file_->content()) return *std::move(content);
    throw Error(
        "--output " + request_.file +
        ": the first life left no such file, neither beside its run (Checkpointer::directory()) nor in "
        "the working directory; a larger --steps may come to where it is written");
  }

  static void say_unseen(const TrialLife& straight) {
    const TrialStep &first = straight.steps.front(), &last = straight.steps.back();
    if (first.epoch == last.epoch) {
      std::cout << "no end of an epoch was seen: a larger --steps may reach one\n";
    }
    if (last.evaluations == 0) {
      std::cout << "no evaluation was seen (Checkpointer::EvaluationScope, metric())\n";
    }
  }

  int refuse(const TrialMoment& moment, const std::string& found) const {
    std::cout << "killed " << printable(moment.name) << ", after step " << format_count(moment.kill_at)
              << "; resumed from step " << format_count(moment.save_at) << '\n'
              << "NOT PROVEN: " << found << '\n'
              << kUsualCauses << doubts_;
    return static_cast<int>(ExitCode::difference);
  }

  void require_something(const TrialLife& straight) const {
    if (straight.steps.empty()) {
      throw Error(
          "the program took no step with a Checkpointer: nothing was compared; it must call "
          "resume(), and after_step() after each step");
    }
    if (static_cast<std::int64_t>(straight.steps.size()) < kFewestSteps) {
      throw Error("the program took only " + format_count(std::ssize(straight.steps)) + " steps; at least " +
                  std::to_string(kFewestSteps) + " are needed");
    }
    if (std::all_of(straight.steps.begin(), straight.steps.end(),
                    [](const TrialStep& step) { return step.loss == "-"; })) {
      throw Error(
          "the program gives after_step() no .loss: what was never added to the state would not be "
          "seen; give it at every step");
    }
  }

  TrialLife live(const std::string& name, const TrialOrders& orders, bool killed) {
    log_info("life {}: {}", ++lives_, name);
    write_orders(folder_.path(), orders);
    const auto out = folder_.path() / "out";
    const auto error = folder_.path() / "err";
    const int status = run_command(out, error);
    TrialLife life = {read_steps(folder_.path()), all_of(out), read_values(folder_.path())};
    // A step beyond the stop means that the loop ignored it.
    const std::size_t taken = life.steps.size();
    if (taken > 1 && life.steps[taken - 2].stops)
      throw Error("the program trains on after Decision::stop; it must leave its loop then");
    // SIGKILL is what the orders asked the program to do to itself.
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && killed) return life;
    if (killed) throw Error("the program did not come to step " + format_count(orders.kill_at) + " again");
    const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    // 75 is right as well: the trial ends with a stop notice, in the middle of the training.
    if (code != 0 && code != static_cast<int>(ExitCode::interrupted)) {
      life.failure = "ended with " + std::to_string(code) + "; its last lines:\n" + last_lines(all_of(error));
      while (life.failure.ends_with('\n')) life.failure.pop_back();
      // The machine's failure says nothing about the state; nor does that of the first life.
      const bool machine = code == static_cast<int>(ExitCode::io_failed) || code == 128 + SIGKILL;
      if (lives_ == 1 || machine)
        throw Error("life " + std::to_string(lives_) + " (" + name + ") of the program " + life.failure);
    }
    return life;
  }

  static int open_new(const std::filesystem::path& path) {
    const int file = ::open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    if (file < 0) throw IoError("open", path.native(), errno);
    return file;
  }

  int run_command(const std::filesystem::path& out, const std::filesystem::path& error) {
    const int output = open_new(out);
    const int errors = open_new(error);
    // Into files: the offset of standard output then tells how much each step has printed.
    const StartedProcess started = start_process(request_.command,
                                                 {.environment = {{kEnvTrial.name, folder_.path().string()}},
                                                  .output = output,
                                                  .error = errors,
                                                  .no_input = true},
                                                 inbox_);
    ::close(output);
    ::close(errors);
    int status = 0;
    std::uintmax_t written = 0;
    SteadyTime progress = std::chrono::steady_clock::now();
    while (::waitpid(started.id, &status, WNOHANG) == 0) {
      const auto signal = inbox_.wait(std::chrono::milliseconds(50));
      if (signal && (*signal == SIGTERM || *signal == SIGINT)) {
        end_now(started.id);
        // An exception, so that the temporary folder is removed on the way out.
        throw Cancelled{*signal};
      }
      const SteadyTime now = std::chrono::steady_clock::now();
      // Each step appends a line.
      if (std::exchange(written, bytes_of_steps(folder_.path())) != written) progress = now;
      if (now - progress < stall_timeout_) continue;
      end_now(started.id);
      // The steps are read after the kill, so that the message names the last one that was taken.
      throw Error(stalled(error));
    }
    ::kill(-started.id, SIGKILL);  // what it left behind
    if (const std::string why = why_not_started(started); !why.empty()) throw UsageError(why);
    return status;
  }

  static void end_now(pid_t group) {
    ::kill(-group, SIGKILL);
    ::waitpid(group, nullptr, 0);
  }

  std::string stalled(const std::filesystem::path& error) const {
    const auto steps = read_steps(folder_.path());
    const bool told = !steps.empty() && steps.back().stops;
    return "life " + std::to_string(lives_) + " of the program " +
           (steps.empty() ? std::string("took no step")
            : told ? "was told to stop at step " + format_count(steps.back().step) + ", and did not end"
                   : "took no step after step " + format_count(steps.back().step)) +
           " for " + format_duration(stall_timeout_) +
           ", and was killed; nothing is proven. If it was only slow, give a longer --stall-timeout. Its "
           "last lines:\n" +
           last_lines(all_of(error));
  }

  const CheckRequest& request_;
  const Duration stall_timeout_;
  SignalInbox inbox_;
  TrialFolder folder_;
  std::optional<LeftFile> file_;
  int lives_ = 0;
  std::string doubts_;
};

int run_check(const CheckRequest& request) {
  if (request.command.empty()) {
    throw UsageError("no command given: put it last, after two dashes: holdfast check -- ./train --lr 0.1");
  }
  return Check(request).run();
}

constexpr char kCheckFooter[] =
    R"(Runs COMMAND for N steps. Then runs it again and kills it (SIGKILL), K times: in the middle, right after a save, late, at an
epoch's end (if the state knows its position in the data), right after a part of the state changed its form and before that,
right after a change of a value that had stood still, and elsewhere. Each time it resumes from a checkpoint before the kill,
and computes every later step again. The loss and the digest of the state must be equal at every step, bit for bit. Without
--steps the first life decides: at least 60 steps, more until it has seen an epoch's end and an evaluation (EvaluationScope,
metric()), at most 1000 steps or 10 s of training.

COMMAND trains in a temporary folder (TMPDIR); its own run directory is not used. A file that COMMAND keeps beside its run
must be named from Checkpointer::directory(), which is in that folder then; under any other name the real file is overwritten.
It must be one process, and start with the same random numbers every time.

--output FILE compares what the program leaves: a best model that no later step reads decides nothing else. FILE lies beside the
trial's run, in it, or anywhere: then a file of yours is put aside meanwhile, as FILE.before-check.

Exit code: 0 PROVEN, and for which steps; 1 NOT PROVEN, with the first step that differs and what differs there, or how a
resumed life failed; 64 wrong options; 70 COMMAND failed or hung, or there was nothing to compare; 130 Ctrl-C, 143 SIGTERM.

Example:
  holdfast check --steps 200 -- ./train --checkpoint-dir /mnt/ckpt/run1)";

}  // namespace

void add_check(CLI::App& app, const std::vector<std::string>& wrapped, Command& chosen) {
  const auto request = std::make_shared<CheckRequest>();
  // CLI11 never saw these words: it would split an argument such as [1,2].
  request->command = wrapped;
  CLI::App* const command = app.add_subcommand(
      "check",
      "Kill and resume your own trainer, and prove that it computes the same: check [OPTIONS] -- COMMAND...");
  command
      ->add_option("--steps", request->steps,
                   "number of steps of each life (default: as the first life decides)")
      ->check(CLI::Range(std::int64_t{kFewestSteps}, std::int64_t{1'000'000}))
      ->type_name("N");
  command->add_option("--kills", request->kills, "number of kills; each takes two more lives")
      ->check(CLI::Range(std::size_t{1}, std::size_t{100}))
      ->type_name("K")
      ->capture_default_str();
  command->add_flag("--stdout", request->standard_output, "compare what is printed to standard output, too");
  command->add_option("--output", request->file, "compare this file, which the program writes, too")
      ->type_name("FILE");
  add_time(
      *command, "--stall-timeout", request->stall_timeout,
      "time without a step, or from the stop to the end, after which a life counts as hung and is killed");
  command->footer(kCheckFooter);
  command->callback([request, &chosen] { chosen = [request] { return run_check(*request); }; });
}

}}  // namespace holdfast::v0_2
