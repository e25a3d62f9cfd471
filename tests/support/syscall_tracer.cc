#include "support/syscall_tracer.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <stdexcept>

namespace holdfast::test {
namespace {

constexpr int kSyscallStop = SIGTRAP | 0x80;  // PTRACE_O_TRACESYSGOOD
#if defined(__x86_64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#else
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#endif

template <class Call>
auto retry(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

bool install(const sock_fprog& program) {
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

[[noreturn]] void refuse(const char* what) {
  throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
}

}  // namespace

SyscallTracer::Way SyscallTracer::best_way() {
  static const Way way = [] {
    const pid_t child = ::fork();
    if (child == 0) {
      sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
      ::_exit(install({1, &allow}) ? 0 : 1);
    }
    int status = 0;
    const bool worked = child > 0 && retry([&] { return ::waitpid(child, &status, 0); }) == child;
    return worked && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? Way::filter : Way::every_call;
  }();
  return way;
}

std::optional<std::string> SyscallTracer::why_not() {
  try {
    const TemporaryFolder folder;
    SyscallTracer run({"/bin/sh", "-c", ": >\"$0/a\"", folder.path()}, {}, folder.path());
    if (run.wait().exit_code == 0 && !run.calls().empty()) return std::nullopt;
    return "a program that is traced here does not show its system calls";
  } catch (const std::runtime_error& error) {
    return std::string("programs may not be traced here: ") + error.what();
  }
}

SyscallTracer::SyscallTracer(std::vector<std::string> command,
                             const std::map<std::string, std::string>& environment,
                             const std::filesystem::path& folder, Way way, std::chrono::seconds limit)
    : folder_(std::filesystem::weakly_canonical(folder)), way_(way) {
  std::vector<sock_filter> code = changing_calls_filter();
  const sock_fprog program{static_cast<unsigned short>(code.size()), code.data()};
  std::array<int, 2> gate{};
  if (::pipe2(gate.data(), O_CLOEXEC) != 0) refuse("pipe");
  // The filter is the child's only, and a tracer must exist when it takes effect.
  root_ = start_program(std::move(command), environment, output_.path(), [&] {
    ::setpgid(0, 0);
    char word = 0;
    if (retry([&] { return ::read(gate[0], &word, 1); }) != 1) ::_exit(126);
    if (way_ == Way::filter && !install(program)) ::_exit(126);
  });
  ::close(gate[0]);
  try {
    attach(gate[1]);
  } catch (...) {
    ::close(gate[1]);
    ::kill(root_, SIGKILL);
    retry([&] { return ::waitpid(root_, nullptr, 0); });
    throw;
  }
  ::close(gate[1]);
  watchdog_ = std::jthread([group = root_, limit](const std::stop_token& stop) {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any wake;
    wake.wait_for(lock, stop, limit, [] { return false; });
    if (!stop.stop_requested()) ::kill(-group, SIGKILL);
  });
}

void SyscallTracer::attach(int gate) {
  ::setpgid(root_, root_);  // whoever of both comes first
  constexpr auto kOptions = PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
                            PTRACE_O_TRACEEXEC | PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACESECCOMP |
                            PTRACE_O_EXITKILL;
  if (::ptrace(PTRACE_SEIZE, root_, nullptr, kOptions) != 0) refuse("ptrace");
  threads_.emplace(root_, Thread{});
  if (::ptrace(PTRACE_INTERRUPT, root_, nullptr, nullptr) != 0) refuse("ptrace");
  if (retry([&] { return ::write(gate, "", 1); }) != 1) refuse("write");
  while (!threads_.at(root_).stands && next_event()) {
  }
}

SyscallTracer::~SyscallTracer() {
  if (!ended_) kill();
}

bool SyscallTracer::run_to(std::size_t number, Moment moment) {
  if (number <= calls_.size()) throw std::logic_error("that call lies in the past");
  return run_to([this, number](const ChangingCall&) { return calls_.size() == number; }, moment);
}

bool SyscallTracer::run_to(const std::function<bool(const ChangingCall&)>& wanted, Moment moment) {
  wanted_ = wanted;
  moment_ = moment;
  return run();
}

void SyscallTracer::hold() {
  const auto all_stand = [&] {
    // A thread that has ended cannot be interrupted, and its parent may report its end first.
    std::erase_if(threads_, [](const auto& entry) {
      const auto& [thread, state] = entry;
      return !state.stands && ::ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr) != 0;
    });
    return std::all_of(threads_.begin(), threads_.end(),
                       [](const auto& entry) { return entry.second.stands; });
  };
  // Other reports (a call of their own, a signal) stop threads too.
  while (!all_stand() && next_event()) {
  }
}

Ended SyscallTracer::kill() {
  ::kill(-root_, SIGKILL);
  return drain();
}

Ended SyscallTracer::wait() {
  wanted_ = nullptr;
  run();
  return drain();
}

std::vector<std::string> SyscallTracer::hidden() const {
  std::vector<std::string> texts;
  for (const ChangingCall& call : calls_) {
    if (call.hidden) texts.push_back(call.text());
  }
  return texts;
}

std::string SyscallTracer::out() const { return read_text(output_.path() / "out"); }

bool SyscallTracer::run() {
  reached_ = false;
  let_on();
  while (!reached_ && next_event()) {
    if (!reached_) let_on();
  }
  return reached_;
}

Ended SyscallTracer::drain() {
  while (next_event()) {
  }
  return ended_with(status_, output_.path());
}

void SyscallTracer::let_on() {
  for (auto& [thread, state] : threads_) {
    if (!state.stands) continue;
    const bool every_stop = state.to_exit || way_ == Way::every_call;
    // Another process may have killed it; then its end is the next event.
    ::ptrace(every_stop ? PTRACE_SYSCALL : PTRACE_CONT, thread, nullptr, state.signal);
    state.stands = false;
    state.signal = 0;
  }
}

// False if all of it has ended.
bool SyscallTracer::next_event() {
  if (ended_) return false;
  int status = 0;
  // By process group and this thread's children only: other threads wait for other children.
  const pid_t thread = retry([&] { return ::waitpid(-root_, &status, __WALL | __WNOTHREAD); });
  if (thread < 0) {
    ended_ = true;
    watchdog_.request_stop();
    return false;
  }
  if (WIFSTOPPED(status)) {
    stopped(thread, status);
  } else {
    threads_.erase(thread);
    if (thread == root_) status_ = status;
  }
  return true;
}

void SyscallTracer::stopped(pid_t thread, int status) {
  Thread& state = threads_[thread];
  state.stands = true;
  const int signal = WSTOPSIG(status);
  switch (status >> 16) {
    case PTRACE_EVENT_SECCOMP:
      consider(thread);
      return;
    case PTRACE_EVENT_CLONE:
    case PTRACE_EVENT_FORK:
    case PTRACE_EVENT_VFORK: {
      unsigned long child = 0;  // hold() must know of it before it reports
      if (::ptrace(PTRACE_GETEVENTMSG, thread, nullptr, &child) == 0) {
        threads_.try_emplace(static_cast<pid_t>(child));
      }
      return;
    }
    case PTRACE_EVENT_EXEC:
    case PTRACE_EVENT_STOP:
      return;
    default:
      break;
  }
  if (signal != kSyscallStop) {
    state.signal = signal;
  } else if (state.to_exit) {
    state.to_exit = false;
    reached_ = true;
  } else {
    consider(thread);
  }
}

// A thread is at the entry of a call that may matter or, without the filter, at the end of any call.
void SyscallTracer::consider(pid_t thread) {
  __ptrace_syscall_info info{};
  if (::ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof info, &info) <= 0) return;  // killed meanwhile
  const bool entry = info.op == PTRACE_SYSCALL_INFO_ENTRY;
  if (!entry && info.op != PTRACE_SYSCALL_INFO_SECCOMP) return;
  std::array<std::uint64_t, 6> arguments{};
  std::copy_n(entry ? info.entry.args : info.seccomp.args, arguments.size(), arguments.begin());
  auto call = changing_call(thread, info.arch != kArchitecture, entry ? info.entry.nr : info.seccomp.nr,
                            arguments, folder_);
  if (!call) return;
  calls_.push_back(std::move(*call));
  if (reached_ || !wanted_ || !wanted_(calls_.back())) return;
  if (moment_ == Moment::before) {
    reached_ = true;
  } else {
    threads_[thread].to_exit = true;
  }
  wanted_ = nullptr;
}

}  // namespace holdfast::test
