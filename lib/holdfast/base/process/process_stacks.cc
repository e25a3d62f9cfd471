#include "holdfast/base/process/process_stacks.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <deque>
#include <fstream>
#include <thread>
#include <utility>

#include "holdfast/base/env.h"
#include "holdfast/base/hook_context.h"
#include "holdfast/base/process/own_stacks.h"
#include "holdfast/base/process/process_threads.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// Each reads the symbols of a whole program.
constexpr unsigned kMostToolsAtOnce = 8;

// By the order in which they are tried.
constexpr std::array<const char*, 2> kStackTools{"eu-stack", "gdb"};

// Deep enough for a training loop in LibTorch. An endless recursion would fill the text.
std::vector<std::string> words_for(const std::string& tool, pid_t process) {
  const std::string id = std::to_string(process);
  if (tool == "eu-stack") return {tool, "-m", "-n", "64", "-p", id};
  return {tool, "-nx", "-nh", "-batch", "-p", id, "-ex", "thread apply all bt 64"};
}

std::vector<char*> addresses_of(std::vector<std::string>& texts) {
  std::vector<char*> all;
  all.reserve(texts.size() + 1);
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

// One tool that reads one process.
class StackTool {
 public:
  StackTool(pid_t process, SteadyTime end, std::size_t most)
      : process_(process), most_(most), was_stopped_(state_of(process) == 'T') {
    if (process == getpid()) {
      text_ = own_stacks(end).substr(0, most);
      return;
    }
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) {
      fail(errno);
      return;
    }
    // In a group of its own, so that all of it can be killed.
    posix_spawnattr_t how;
    posix_spawnattr_init(&how);
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setpgroup(&how, 0);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&how, &none);
    sigaddset(&none, SIGPIPE);
    posix_spawnattr_setsigdefault(&how, &none);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&files, ends[1], STDERR_FILENO);
    // Without the servers of debug information: nobody waits for a download here.
    std::vector<std::string> settings =
        environment_for_child({{kHookVariable, kStackToolName}}, {"DEBUGINFOD_URLS"});
    int refused = ENOENT;
    for (const char* const tool : kStackTools) {
      if (refused != ENOENT) break;
      std::vector<std::string> words = words_for(tool, process);
      refused =
          posix_spawnp(&id_, tool, &files, &how, addresses_of(words).data(), addresses_of(settings).data());
    }
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&how);
    close(ends[1]);
    output_ = ends[0];
    if (refused != 0) {
      close(std::exchange(output_, -1));
      fail(refused);
      return;
    }
    // Where memory is short, the kernel ends the tool and not the training.
    std::ofstream("/proc/" + std::to_string(id_) + "/oom_score_adj") << "1000";
  }
  ~StackTool() {
    if (output_ >= 0) close(output_);
  }
  StackTool(const StackTool&) = delete;
  StackTool& operator=(const StackTool&) = delete;

  int output() const { return output_; }  // -1: it has ended

  void read_some() {
    std::array<char, 4096> piece{};
    const ssize_t got = read(output_, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) return;
    if (got <= 0) return finish();
    // What is too much is read as well: a tool that cannot write would not end.
    const std::size_t room = most_ - std::min(most_, text_.size());
    text_.append(piece.data(), std::min(room, static_cast<std::size_t>(got)));
  }
  void kill_late() {
    // Its pipe is open, so its group exists.
    kill(-id_, SIGKILL);
    text_ += "\n(the tool did not end in time and was killed" +
             std::string(text_.find('#') == std::string::npos ? "; eu-stack, of elfutils, is the faster one"
                                                              : "") +
             ")\n";
    finish();
    // A tool that is killed may leave the process stopped, and then it could not leave in order.
    if (!was_stopped_ && state_of(process_) == 'T') kill(process_, SIGCONT);
  }
  std::string take() { return std::move(text_); }

 private:
  void fail(int error) {
    text_ = error == ENOENT ? "neither eu-stack (elfutils) nor gdb is installed\n"
                            : std::string("no tool can be started: ") + std::strerror(error) + "\n";
  }
  void finish() {
    close(std::exchange(output_, -1));
    // Another thread may reap all children. A tool that hangs in the kernel is left.
    for (int i = 0; i < 50 && waitpid(id_, nullptr, WNOHANG) == 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

  const pid_t process_;
  const std::size_t most_;
  const bool was_stopped_;
  pid_t id_ = -1;
  int output_ = -1;
  std::string text_;
};

// Waits for one of them until `end`. False: the time is over.
bool read_from_any(std::deque<StackTool>& tools, SteadyTime end) {
  const Duration left = end - Clock::real().now();
  if (left <= Duration::zero()) return false;
  std::vector<pollfd> looks;
  std::vector<StackTool*> of;
  for (StackTool& tool : tools) {
    if (tool.output() < 0) continue;
    looks.push_back({.fd = tool.output(), .events = POLLIN, .revents = 0});
    of.push_back(&tool);
  }
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  if (poll(looks.data(), looks.size(), static_cast<int>(ms)) <= 0) return true;
  for (std::size_t i = 0; i < looks.size(); ++i) {
    if (looks[i].revents != 0) of[i]->read_some();
  }
  return true;
}

}  // namespace

std::vector<std::string> stacks_of(const std::vector<pid_t>& processes, SteadyTime end, std::size_t most) {
  const std::size_t at_once = std::clamp(std::thread::hardware_concurrency(), 1U, kMostToolsAtOnce);
  std::deque<StackTool> tools;
  const auto run = [&] {
    return static_cast<std::size_t>(
        std::count_if(tools.begin(), tools.end(), [](const StackTool& one) { return one.output() >= 0; }));
  };
  while (tools.size() < processes.size() || run() > 0) {
    while (tools.size() < processes.size() && run() < at_once) {
      tools.emplace_back(processes[tools.size()], end, most);
    }
    if (read_from_any(tools, end)) continue;
    for (StackTool& one : tools) {
      if (one.output() >= 0) one.kill_late();
    }
    break;
  }
  std::vector<std::string> texts;
  for (StackTool& one : tools) {
    texts.push_back(one.take());
    const std::string why = why_not_traced();
    // Both tools pass the system's words on.
    if (!why.empty() && texts.back().find("not permitted") != std::string::npos) {
      texts.back() += "no stack was read: " + why + "\n";
    }
  }
  texts.resize(processes.size(), "not read: the time was over\n");
  return texts;
}

}}  // namespace holdfast::v0_2
