#include <CLI/CLI.hpp>
#include <algorithm>
#include <set>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/cli/attended_child.h"
#include "holdfast/cli/commands.h"
#include "holdfast/cli/durations.h"
#include "holdfast/cli/restart_policy.h"
#include "holdfast/cli/run_news.h"
#include "holdfast/snapshot/utf8.h"

namespace holdfast::inline v1 {
namespace {

using namespace std::chrono_literals;

// Where nothing tells whether a life has brought the run forward.
constexpr Duration kLongLife = 10min;
constexpr int kFailed = static_cast<int>(ExitCode::internal);

struct SuperviseRequest {
  std::vector<std::string> command;
  std::string on_complete;
  std::filesystem::path directory;
  int max_restarts = 10;
  std::string first_delay = "1s";
  std::string after_deadline = "1min";
};

class Supervisor {
 public:
  explicit Supervisor(const SuperviseRequest& options)
      : options_(options),
        policy_({.max_restarts = options.max_restarts,
                 .first_delay = duration_of("--first-delay", options.first_delay),
                 .after_deadline = duration_of("--after-deadline", options.after_deadline)}) {}

  int run() {
    learn(news());
    for (;;) {
      const SteadyTime began = Clock::real().now();
      AttendedChild child(options_.command, {}, inbox_);
      if (child.ending().not_started.empty())
        log_info("supervising process {}", static_cast<std::int64_t>(child.id()));
      if (!attend(child)) return child.ending().code() != 0 ? child.ending().code() : kFailed;
      const RunNews after = news();
      const RestartDecision verdict = policy_.after({.ending = child.ending(),
                                                     .asked_to_stop = asked_to_stop_,
                                                     .progress = has_progressed(after, began),
                                                     .deadline_left = time_left(after)});
      log_info(verdict.text);
      if (!verdict.restart) return end(child.ending(), after);
      pause(child, verdict.delay);
      if (asked_to_stop_) {
        log_info("asked to stop while nothing ran; not started again");
        return child.ending().code();
      }
    }
  }

 private:
  RunNews news() const { return options_.directory.empty() ? RunNews{} : read_run_news(options_.directory); }

  void learn(const RunNews& news) {
    if (news.state) durable_step_ = news.state->durable_step;
  }

  bool has_progressed(const RunNews& after, SteadyTime began) {
    if (!after.state) return Clock::real().now() - began >= kLongLife;
    const std::int64_t before = durable_step_;
    learn(after);
    return durable_step_ > before;
  }

  // A life that was too short to hear it again does not take a notice back.
  std::optional<Duration> time_left(const RunNews& after) {
    if (after.deadline) deadline_ = after.deadline;
    if (!deadline_) return std::nullopt;
    return *deadline_ - Clock::real().now();
  }

  // True when it was a signal that asks to stop.
  bool heard(const std::optional<int>& signal, const AttendedChild& child) {
    if (!signal) return false;
    const bool stop = *signal == SIGTERM || *signal == SIGINT;
    asked_to_stop_ |= stop;
    child.send(*signal);
    return stop;
  }

  // False: something of it cannot be ended.
  bool attend(AttendedChild& child) {
    while (!child.ended()) {
      if (heard(inbox_.wait(1s), child)) {
        log_info("passed on to process {}; waiting for it to commit and leave",
                 static_cast<std::int64_t>(child.id()));
      }
    }
    return child.all_ended() || clear(child);
  }

  // A launcher died and its trainer did not: two of them must not run side by side.
  bool clear(AttendedChild& child) {
    const Duration limit = time_to_leave();
    log_info("the command ({}) has left processes behind: they get SIGTERM, and {} to commit and leave",
             to_text(child.ending()), format_duration(limit));
    const SteadyTime end = Clock::real().now() + limit;
    child.send_to_all(SIGTERM);
    std::set<pid_t> told;
    while (!child.all_ended() && Clock::real().now() < end) {
      for (const pid_t process : child.left_behind()) {
        if (told.insert(process).second) kill(process, SIGTERM);
      }
      heard(inbox_.wait(20ms), child);
    }
    if (child.all_ended()) return true;
    log_warning("they are still there; they are killed");
    if (child.end_all()) return true;
    child.leave_alone();
    log_error(
        "they do not end at SIGKILL (a volume that does not answer?); not started again: two trainers must "
        "not run side by side");
    return false;
  }

  // What the last command left elsewhere may end meanwhile, and wants to be reaped.
  void pause(AttendedChild& last, Duration delay) {
    const SteadyTime end = Clock::real().now() + delay;
    while (!asked_to_stop_ && Clock::real().now() < end) {
      heard(inbox_.wait(std::min<Duration>(end - Clock::real().now(), 1s)), last);
      last.ended();
    }
  }

  int end(const Ending& ending, const RunNews& news) {
    if (ending.code() != 0 || options_.on_complete.empty()) return ending.code();
    if (const std::string doubt = doubt_of_completion(news); !doubt.empty()) {
      log_error("--on-complete does not run: exit 0, but {}", doubt);
      return kFailed;
    }
    log_info("the run is complete at step {}; running --on-complete", news.state->step);
    AttendedChild hook({"/bin/sh", "-c", options_.on_complete}, {}, inbox_);
    while (!hook.ended()) heard(inbox_.wait(1s), hook);
    // It may have put something into the background on purpose.
    hook.leave_alone();
    if (hook.ending().code() == 0) return 0;
    log_error("--on-complete: {}; the run itself is complete", to_text(hook.ending()));
    return kFailed;
  }

  const SuperviseRequest& options_;
  SignalInbox inbox_;
  RestartPolicy policy_;
  bool asked_to_stop_ = false;
  std::int64_t durable_step_ = -1;      // the last that the run directory told
  std::optional<SteadyTime> deadline_;  // of this machine
};

int run_supervise(const SuperviseRequest& options) {
  if (options.command.empty()) {
    throw UsageError("which command? It goes last, after two dashes: holdfast supervise -- ./train --lr 0.1");
  }
  if (!options.on_complete.empty() && options.directory.empty()) {
    throw UsageError(
        "--on-complete needs --directory: only the run directory says whether a run is complete");
  }
  return Supervisor(options).run();
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
                   "the run directory: who is complete, what progress is, and which notices came is read "
                   "there")
      ->type_name("DIR");
  command
      ->add_option("--on-complete", options->on_complete,
                   "a shell command for the end of it all, such as cancelling the fleet: runs only when the "
                   "trainer exits with 0 and the run directory says complete")
      ->type_name("CMD");
  command
      ->add_option("--max-restarts", options->max_restarts,
                   "so many restarts in a row without progress, then it stops (progress: a newer committed "
                   "step; without --directory, a life of 10 min)")
      ->check(CLI::Range(0, 1'000'000))
      ->type_name("N")
      ->capture_default_str();
  command
      ->add_option("--first-delay", options->first_delay,
                   "before the first restart; doubled, up to a minute, while there is no progress")
      ->type_name("TIME")
      ->capture_default_str();
  command
      ->add_option("--after-deadline", options->after_deadline,
                   "so long after the deadline of a notice this machine counts as alive")
      ->type_name("TIME")
      ->capture_default_str();
  command->footer(
      "Starts COMMAND again after exit 75 (interrupted), crashes and unknown codes. Stops, and says why, "
      "after 0\n(complete), 64 (wrong options), 74 (the volume), 76 (superseded), 78 (refused) and 130 "
      "(second Ctrl-C). After a\nnotice that this machine goes away within ten minutes it waits: a machine "
      "that is about to die does not train.\nWhat COMMAND leaves behind, in whatever session, gets SIGTERM "
      "and ends before the next start.\n\n"
      "SIGTERM, SIGINT, SIGUSR1 and SIGUSR2 are passed on, each once; SIGHUP as SIGTERM. After SIGTERM or "
      "SIGINT nothing\nstarts again. Works as process 1 of a container. A COMMAND that is a shell script "
      "should `exec` its trainer.\n\n"
      "Exit code: the last COMMAND's, 128 + N when signal N ended it; 70 when --on-complete failed, or "
      "COMMAND said 0\nand the run directory does not say complete.\n\n"
      "Example:\n  holdfast supervise --directory /mnt/ckpt/run1 --on-complete ./cancel-fleet -- ./train "
      "--checkpoint-dir /mnt/ckpt/run1");
  command->callback([options, &chosen] { chosen = [options] { return run_supervise(*options); }; });
}

}  // namespace holdfast::inline v1
