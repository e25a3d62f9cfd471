#include "holdfast/cli/attended_child.h"

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

#include "holdfast/base/text.h"
#include "holdfast/cli/started_process.h"

namespace holdfast::inline v1 {
namespace {

constexpr Duration kPoll = std::chrono::milliseconds(5);
constexpr Duration kPatience = std::chrono::seconds(10);

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

// Those that have ended and were not reaped included.
std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> children;
  std::error_code gone;
  for (std::filesystem::directory_iterator at("/proc", gone), end; !gone && at != end; at.increment(gone)) {
    const auto process = parse_int(at->path().filename().native());
    if (!process) continue;
    std::string text;
    std::getline(std::ifstream(at->path() / "stat"), text);
    // 4711 (name, which may hold anything) S 4242 …
    const auto name_end = text.rfind(") ");
    if (name_end == std::string::npos || name_end + 4 >= text.size()) continue;
    const auto parent_end = text.find(' ', name_end + 4);
    const auto found = parse_int(text.substr(name_end + 4, parent_end - name_end - 4));
    if (found && *found == parent) children.push_back(static_cast<pid_t>(*process));
  }
  return children;
}

}  // namespace

SignalInbox::SignalInbox() {
  sigemptyset(&heard_);
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGCHLD}) sigaddset(&heard_, signal);
  struct sigaction hangup {};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) sigaddset(&heard_, SIGHUP);
  struct sigaction broken_pipe {};
  sigaction(SIGPIPE, nullptr, &broken_pipe);
  ignored_broken_pipes_ = broken_pipe.sa_handler == SIG_IGN;
  // Ignored by whoever started us, it would make the kernel reap our children and keep their endings.
  std::signal(SIGCHLD, SIG_DFL);
  pthread_sigmask(SIG_BLOCK, &heard_, &before_);
}

SignalInbox::~SignalInbox() {
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
  if (signal <= 0 || signal == SIGCHLD) return std::nullopt;
  return signal == SIGHUP ? SIGTERM : signal;
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
  prctl(PR_SET_CHILD_SUBREAPER, 1UL, 0UL, 0UL, 0UL);
  not_ours_ = children_of(getpid());
  const StartedProcess started = start_process(std::move(command), {.environment = environment}, inbox);
  id_ = started.id;
  ending_.not_started = started.not_started;
}

AttendedChild::~AttendedChild() {
  if (!all_ended()) end_all();
}

std::vector<pid_t> AttendedChild::left_behind() const {
  std::vector<pid_t> children = children_of(getpid());
  std::erase_if(children, [this](pid_t child) {
    return child == id_ || getpgid(child) == id_ ||
           std::find(not_ours_.begin(), not_ours_.end(), child) != not_ours_.end();
  });
  return children;
}

// Whoever loses its parent becomes our child, so each round reaches one generation more.
bool AttendedChild::end_all() {
  for (Duration waited{}; waited < kPatience; waited += kPoll) {
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
  if (!group_ended_) kill(-id_, signal);
}

void AttendedChild::reap() {
  int status = 0;
  for (pid_t who = 0; (who = waitpid(-1, &status, WNOHANG)) > 0;) {
    if (who != id_) continue;
    ended_ = true;
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
  // Once it is empty its number may become another's.
  if (ended_ && !group_ended_) group_ended_ = kill(-id_, 0) != 0 && errno == ESRCH;
  if (group_ended_ && !all_ended_) all_ended_ = left_behind().empty();
  return all_ended_;
}

}  // namespace holdfast::inline v1
