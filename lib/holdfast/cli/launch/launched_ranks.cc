#include "holdfast/cli/launch/launched_ranks.h"

#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "holdfast/cli/child/started_process.h"
#include "holdfast/cli/durations.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using namespace std::chrono_literals;

// The launcher waits this long for processes that a rank left behind: no rank needs them.
constexpr Duration kLeave = 5s;

std::vector<std::string> labels_of(const std::vector<RankSetting>& settings) {
  std::vector<std::string> labels;
  labels.reserve(settings.size());
  for (const RankSetting& setting : settings) labels.push_back(std::to_string(setting.rank));
  return labels;
}

Ending ending_of(int status, const std::string& not_started) {
  if (WIFSIGNALED(status)) return {.exit_code = 0, .signal = WTERMSIG(status), .not_started = {}};
  return {.exit_code = WEXITSTATUS(status), .signal = 0, .not_started = not_started};
}

}  // namespace

LaunchedRanks::LaunchedRanks(const std::vector<std::string>& command,
                             const std::vector<RankSetting>& settings, const SignalInbox& inbox)
    : guardian_(longest_time_to_leave()), output_(labels_of(settings)) {
  // What a rank leaves behind becomes a child of this process, which can then reap it.
  prctl(PR_SET_CHILD_SUBREAPER, 1UL, 0UL, 0UL, 0UL);
  try {
    for (std::size_t i = 0; i < settings.size(); ++i) {
      StartedProcess started = start_process(command,
                                             {.environment = settings[i].environment,
                                              .without = settings[i].without,
                                              .output = output_.out(i),
                                              .error = output_.error(i),
                                              .inherited = settings[i].inherited,
                                              .announced_to = guardian_.ranks_to_guard(),
                                              .no_input = true},
                                             inbox);
      const pid_t id = started.id;
      processes_.push_back({.rank = settings[i].rank, .id = id, .started = std::move(started)});
    }
    output_.begin();
  } catch (...) {
    // The ranks that have started would wait for the missing ones.
    send(SIGKILL);
    throw;
  }
}

LaunchedRanks::~LaunchedRanks() {
  // The launcher is on its way out with an exception: nobody would hear what the ranks say.
  if (!ended()) send(SIGKILL);
}

pid_t LaunchedRanks::reap_one(int& status) {
  const pid_t who = waitpid(-1, &status, WNOHANG);
  guardian_.reaped(who);
  return who;
}

std::vector<RankEnding> LaunchedRanks::reap() {
  std::vector<RankEnding> fresh;
  int status = 0;
  for (pid_t who = 0; (who = reap_one(status)) > 0;) {
    const auto found = std::find_if(processes_.begin(), processes_.end(), [&](const Process& process) {
      return process.id == who && !process.ended;
    });
    if (found == processes_.end()) continue;  // the guardian, or a process that a rank left behind
    found->ended = true;
    fresh.push_back(
        {.rank = found->rank, .ending = ending_of(status, why_not_started(found->started)), .told = told_});
  }
  // Endings of one round have no order. A killed rank comes before the ranks that noticed its loss.
  std::stable_sort(fresh.begin(), fresh.end(), [](const RankEnding& a, const RankEnding& b) {
    return (a.ending.signal != 0) > (b.ending.signal != 0);
  });
  endings_.insert(endings_.end(), fresh.begin(), fresh.end());
  return fresh;
}

std::string LaunchedRanks::living() const {
  std::string text;
  for (const Process& process : processes_) {
    if (!process.ended) text += (text.empty() ? "" : ", ") + std::to_string(process.rank);
  }
  return (text.find(',') == std::string::npos ? "rank " : "ranks ") + text;
}

std::vector<pid_t> LaunchedRanks::living_processes() const {
  std::vector<pid_t> living;
  for (const Process& process : processes_) {
    if (!process.ended) living.push_back(process.id);
  }
  return living;
}

void LaunchedRanks::send(int signal) const {
  for (const Process& process : processes_) {
    // A rank passes other signals on by itself, and must get each only once.
    if (!process.ended) kill(signal == SIGKILL ? -process.id : process.id, signal);
  }
}

void LaunchedRanks::tell(int signal) {
  told_ = true;
  send(signal);
}

// A group that was empty once is not asked again, because its number may be reused.
bool LaunchedRanks::groups_gone() {
  bool all = true;
  for (Process& process : processes_) {
    // EPERM means the opposite: processes are left, and all of them are another user's.
    process.group_gone = process.group_gone || (kill(-process.id, 0) != 0 && errno == ESRCH);
    all = all && process.group_gone;
  }
  return all;
}

void LaunchedRanks::signal_groups(int signal) const {
  for (const Process& process : processes_) {
    if (!process.group_gone) kill(-process.id, signal);
  }
}

void LaunchedRanks::clear(const std::function<std::optional<SteadyTime>()>& wait) {
  const SteadyTime usual_end = Clock::real().now() + kLeave;
  int status = 0;
  if (!groups_gone()) {
    signal_groups(SIGTERM);
    while (!groups_gone() && Clock::real().now() < wait().value_or(usual_end)) {
      // A zombie keeps its group alive, so it is reaped before the next look.
      while (reap_one(status) > 0) {
      }
    }
    signal_groups(SIGKILL);
  }
  output_.finish();
}

}}  // namespace holdfast::v0_2
