#include "holdfast/cli/child/attended_child.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/hook_context.h"
#include "holdfast/base/log.h"
#include "holdfast/base/process/process_stacks.h"
#include "holdfast/base/text.h"
#include "holdfast/cli/child/started_process.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr Duration kPoll = std::chrono::milliseconds(5);
// SIGKILL takes effect at once, except on a process that hangs in a disk.
constexpr Duration kPatienceAtItsEnd = std::chrono::seconds(10);

constexpr std::array<std::pair<int, const char*>, 15> kNames{{{SIGTERM, "SIGTERM"},
                                                              {SIGINT, "SIGINT"},
                                                              {SIGKILL, "SIGKILL"},
                                                              {SIGSEGV, "SIGSEGV"},
                                                              {SIGABRT, "SIGABRT"},
                                                              {SIGBUS, "SIGBUS"},
                                                              {SIGFPE, "SIGFPE"},
                                                              {SIGILL, "SIGILL"},
                                                              {SIGHUP, "SIGHUP"},
                                                              {SIGQUIT, "SIGQUIT"},
                                                              {SIGPIPE, "SIGPIPE"},
                                                              {SIGUSR1, "SIGUSR1"},
                                                              {SIGUSR2, "SIGUSR2"},
                                                              {SIGXCPU, "SIGXCPU"},
                                                              {SIGSYS, "SIGSYS"}}};

// True for a trainer's --on-risk command, and for processes that it started; also for a tool of this program
// that reads stacks.
// By the environment, because a hook may have left the group and the session. /proc shows it as it was at
// exec.
bool is_left_alone(pid_t process) {
  const std::string mark = std::string(kHookVariable) + "=";
  std::ifstream environment("/proc/" + std::to_string(process) + "/environ", std::ios::binary);
  for (std::string entry; std::getline(environment, entry, '\0');) {
    if (entry == mark + kRiskHookName || entry == mark + kStackToolName) return true;
  }
  return false;
}

// Each process and its parent.
std::vector<std::pair<pid_t, pid_t>> all_processes() {
  std::vector<std::pair<pid_t, pid_t>> all;
  std::error_code gone;
  for (std::filesystem::directory_iterator at("/proc", gone), end; !gone && at != end; at.increment(gone)) {
    const auto process = parse_int(at->path().filename().native());
    if (!process) continue;
    std::string text;
    std::getline(std::ifstream(at->path() / "stat"), text);
    // "4711 (name) S 4242 …"; the name may hold any byte, so search from its end.
    const auto name_end = text.rfind(") ");
    if (name_end == std::string::npos || name_end + 4 >= text.size()) continue;
    const auto parent_end = text.find(' ', name_end + 4);
    const auto parent = parse_int(text.substr(name_end + 4, parent_end - name_end - 4));
    if (parent) all.emplace_back(static_cast<pid_t>(*process), static_cast<pid_t>(*parent));
  }
  return all;
}

}  // namespace

SignalInbox::SignalInbox() {
  sigemptyset(&heard_);
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGCHLD}) sigaddset(&heard_, signal);
  for (const int signal : {SIGHUP, SIGXCPU}) {
    struct sigaction before {};
    sigaction(signal, nullptr, &before);
    // nohup ignores SIGHUP, and that wish stands unless the variable names the signal.
    if (before.sa_handler != SIG_IGN || stops_.is_named(signal)) sigaddset(&heard_, signal);
  }
  struct sigaction broken_pipe {};
  sigaction(SIGPIPE, nullptr, &broken_pipe);
  ignored_broken_pipes_ = broken_pipe.sa_handler == SIG_IGN;
  // If our parent ignored it, the kernel would reap our children, and their endings would be lost.
  std::signal(SIGCHLD, SIG_DFL);
  // Blocked, so that sigtimedwait() takes them one by one and none interrupts this program.
  pthread_sigmask(SIG_BLOCK, &heard_, &before_);
}

SignalInbox::~SignalInbox() {
  // Signals that still wait would hit the program as soon as the mask is restored.
  const timespec now{};
  while (sigtimedwait(&heard_, nullptr, &now) > 0) {
  }
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

std::optional<int> SignalInbox::wait(Duration limit) {
  const auto left = std::max(limit, Duration::zero());
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
  const timespec time{.tv_sec = seconds.count(), .tv_nsec = (left - seconds).count()};
  const int signal = sigtimedwait(&heard_, nullptr, &time);
  // SIGCHLD only ends the wait: the caller looks at its children anyway.
  if (signal <= 0 || signal == SIGCHLD) return std::nullopt;
  // The terminal and resource limits signal a whole group or one process. The command gets a signal that it
  // handles in any case, and gets it once.
  const bool stop = signal == SIGHUP || signal == SIGXCPU || (signal != SIGINT && stops_.has(signal));
  return stop ? SIGTERM : signal;
}

std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> children;
  for (const auto& [process, its_parent] : all_processes()) {
    if (its_parent == parent) children.push_back(process);
  }
  return children;
}

std::vector<pid_t> with_descendants(const std::vector<pid_t>& processes) {
  const auto all = all_processes();
  std::vector<pid_t> found = processes;
  // Grows while it is walked.
  for (std::size_t i = 0; i < found.size(); ++i) {
    for (const auto& [process, parent] : all) {
      if (parent == found[i] && std::find(found.begin(), found.end(), process) == found.end()) {
        found.push_back(process);
      }
    }
  }
  return found;
}

std::string signal_name(int signal) {
  for (const auto& [number, name] : kNames) {
    if (number == signal) return name;
  }
  return "signal " + std::to_string(signal);
}

std::string to_text(const Ending& ending) {
  if (!ending.not_started.empty()) return ending.not_started;
  if (ending.signal != 0) return "killed by " + signal_name(ending.signal);
  return "exit " + std::to_string(ending.exit_code);
}

AttendedChild::AttendedChild(std::vector<std::string> command,
                             const std::map<std::string, std::string>& environment,
                             const SignalInbox& inbox) {
  // Orphans of the command become our children, so that left_behind() finds them in any session.
  prctl(PR_SET_CHILD_SUBREAPER, 1UL, 0UL, 0UL, 0UL);
  try {
    // A supervisor inside a hook must not hand the mark on: its command is no hook.
    started_ =
        start_process(std::move(command), {.environment = environment, .without = {kHookVariable}}, inbox);
    id_ = started_.id;
  } catch (const IoError& error) {
    // An ending too, so that a wrapper judges a command that cannot start as it judges every other.
    ended_ = group_ended_ = true;
    ending_ = {.exit_code = static_cast<int>(ExitCode::internal), .not_started = error.what()};
  }
}

AttendedChild::~AttendedChild() {
  if (!all_ended()) end_all();
}

std::vector<pid_t> AttendedChild::left_behind() {
  std::vector<pid_t> children = children_of(getpid());
  // send_to_all() reaches those of the group. The command of a risk hook may outlive its run.
  std::erase_if(children, [this](pid_t child) {
    return child == id_ || is_left_alone(child) || is_anothers(child) || getpgid(child) == id_;
  });
  return children;
}

bool AttendedChild::is_anothers(pid_t process) {
  // EPERM means that the process lives and belongs to another user.
  if (kill(process, 0) == 0 || errno != EPERM) return false;
  if (others_.insert(process).second) {
    log_warning("the command has left process {} behind, which is another user's: it is left alone", process);
  }
  return true;
}

// The children of a killed process become our children, so each round reaches the next generation.
bool AttendedChild::end_all() {
  for (Duration waited{}; waited < kPatienceAtItsEnd; waited += kPoll) {
    send_to_all(SIGKILL);
    for (const pid_t process : left_behind()) kill(process, SIGKILL);
    if (all_ended()) return true;
    std::this_thread::sleep_for(kPoll);
  }
  return false;
}

void AttendedChild::send(int signal) const {
  if (!ended_) kill(id_, signal);
}

void AttendedChild::send_to_all(int signal) const {
  // A negative number addresses the whole process group.
  if (!group_ended_) kill(-id_, signal);
}

void AttendedChild::reap() {
  int status = 0;
  // Orphans that became children of this process are reaped as well, so that none stays a zombie.
  for (pid_t who = 0; (who = waitpid(-1, &status, WNOHANG)) > 0;) {
    if (who != id_) continue;
    ended_ = true;
    ending_.not_started = why_not_started(started_);
    if (WIFSIGNALED(status)) {
      ending_.signal = WTERMSIG(status);
    } else {
      ending_.exit_code = WEXITSTATUS(status);
    }
  }
}

bool AttendedChild::ended() {
  reap();
  return ended_;
}

bool AttendedChild::all_ended() {
  reap();
  // Not asked again once the group is empty, because its number may be reused. EPERM: only another user's are
  // left.
  if (ended_ && !group_ended_) group_ended_ = kill(-id_, 0) != 0;
  if (group_ended_ && !all_ended_) all_ended_ = left_behind().empty();
  return all_ended_;
}

}}  // namespace holdfast::v0_2
