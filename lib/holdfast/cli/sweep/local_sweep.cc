#include "holdfast/cli/sweep/local_sweep.h"

#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <utility>

#include "holdfast/base/env.h"
#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/cli/child/attended_child.h"
#include "holdfast/cli/child/started_process.h"
#include "holdfast/cli/launch/rank_output.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr int kEndedBySecondCtrlC = 130;
constexpr auto kResumable = static_cast<int>(ExitCode::interrupted);

class LocalSweep {
 public:
  LocalSweep(std::vector<LocalRun>& runs, const std::vector<std::string>& gpus, std::size_t at_once)
      : runs_(runs), gpus_(gpus), places_(at_once) {}

  int run() {
    for (;;) {
      bool any = false;
      for (std::size_t i = 0; i < places_.size(); ++i) {
        if (places_[i].run == nullptr) start_next(i);
        any = any || places_[i].run != nullptr;
      }
      if (!any) break;
      pass_on(inbox_.wait(std::chrono::seconds(1)));
      reap();
    }
    return verdict();
  }

 private:
  struct Place {
    LocalRun* run = nullptr;  // nullptr: free
    StartedProcess process = {};
    std::unique_ptr<RankOutput> output = {};
  };

  void start_next(std::size_t place) {
    while (!asked_to_stop_ && next_ < runs_.size()) {
      LocalRun& run = runs_[next_++];
      if (run.code) continue;
      start(run, place);
      return;
    }
  }

  void start(LocalRun& run, std::size_t place) {
    ProcessOptions options{.no_input = true};
    std::string where;
    if (!gpus_.empty()) {
      options.environment[kEnvVisibleDevices.name] = gpus_[place];
      where = " on GPU " + gpus_[place];
    }
    log_info("{} starts{} ({} of {})", run.name, where, &run - runs_.data() + 1, runs_.size());
    auto output = std::make_unique<RankOutput>(std::vector{run.name});
    options.output = output->out(0);
    options.error = output->error(0);
    try {
      places_[place].process = start_process(run.command, options, inbox_);
    } catch (const IoError& error) {
      // A passing limit on processes must not abandon the runs that train.
      log_error("{}: {}", run.name, error.what());
      run.code = static_cast<int>(ExitCode::internal);
      return;
    }
    output->begin();
    places_[place].run = &run;
    places_[place].output = std::move(output);
  }

  // Each process has its own group, so a Ctrl-C at the terminal reaches it only from here.
  void pass_on(const std::optional<int>& signal) {
    if (!signal) return;
    if ((*signal == SIGTERM || *signal == SIGINT) && !std::exchange(asked_to_stop_, true)) {
      log_info("asked to stop: no further run starts, and those that train commit and leave");
    }
    for (const Place& place : places_) {
      if (place.run != nullptr) kill(place.process.id, *signal);
    }
  }

  // Of all children: as process 1 of a container it inherits orphans.
  void reap() {
    int status = 0;
    for (pid_t who = 0; (who = waitpid(-1, &status, WNOHANG)) > 0;) {
      const auto found = std::find_if(places_.begin(), places_.end(), [&](const Place& place) {
        return place.run != nullptr && place.process.id == who;
      });
      if (found == places_.end()) continue;
      const std::string not_started = why_not_started(found->process);
      found->output->finish();
      LocalRun& run = *found->run;
      run.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      log_info("{} ended with {}{}", run.name, *run.code, not_started.empty() ? "" : ": " + not_started);
      *found = {};
    }
  }

  int verdict() const {
    std::size_t complete = 0;
    std::size_t resumable = 0;
    std::size_t waiting = 0;
    bool second_ctrl_c = false;
    int first_failure = 0;
    std::string failures;
    for (const LocalRun& run : runs_) {
      if (!run.code) {
        ++waiting;
      } else if (*run.code == 0) {
        ++complete;
      } else if (*run.code == kResumable) {
        ++resumable;
      } else {
        second_ctrl_c = second_ctrl_c || *run.code == kEndedBySecondCtrlC;
        if (first_failure == 0) first_failure = *run.code;
        failures += (failures.empty() ? "" : ", ") + run.name + " (exit " + std::to_string(*run.code) + ")";
      }
    }
    log_info("{} runs: {} complete, {} interrupted, {} not started{}{}", runs_.size(), complete, resumable,
             waiting, failures.empty() ? "" : "; failed: ", failures);
    if (second_ctrl_c) return kEndedBySecondCtrlC;
    // Before a failure: this code makes an engine start the sweep again, which the others need. The failed
    // run then fails again, and decides.
    return resumable + waiting > 0 ? kResumable : first_failure;
  }

  std::vector<LocalRun>& runs_;
  const std::vector<std::string>& gpus_;
  SignalInbox inbox_;
  std::vector<Place> places_;
  std::size_t next_ = 0;
  bool asked_to_stop_ = false;
};

}  // namespace

int run_locally(std::vector<LocalRun>& runs, const std::vector<std::string>& gpus, std::size_t at_once) {
  return LocalSweep(runs, gpus, at_once).run();
}

}}  // namespace holdfast::v0_2
