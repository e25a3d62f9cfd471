#include "holdfast/base/process/own_stacks.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <unwind.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <locale>
#include <memory>
#include <sstream>
#include <thread>
#include <vector>

#include "holdfast/base/mutex.h"
#include "holdfast/base/process/process_threads.h"
#include "holdfast/base/utf8.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using namespace std::chrono_literals;

constexpr Duration kToNote = 300ms;
constexpr std::size_t kMostOwnThreads = 512;
// The first are the handler and the frame of the signal.
constexpr std::size_t kFramesOfHandler = 2;

struct NotedStack {
  pid_t thread = 0;
  bool asked = false;
  std::array<std::uintptr_t, 64 + kFramesOfHandler> frames{};
  std::size_t count = 0;
  std::atomic<bool> noted{false};
};

_Unwind_Reason_Code note_frame(_Unwind_Context* context, void* to) {
  auto& stack = *static_cast<NotedStack*>(to);
  const std::uintptr_t address = _Unwind_GetIP(context);
  if (address == 0 || stack.count == stack.frames.size()) return _URC_END_OF_STACK;
  stack.frames[stack.count++] = address;
  return _URC_NO_REASON;
}

void note_stack(int, siginfo_t* info, void*) {
  // Others may send the same signal, and their value is no address.
  if (info->si_code != SI_QUEUE || info->si_pid != getpid() || info->si_value.sival_ptr == nullptr) return;
  const int before = errno;
  auto* const stack = static_cast<NotedStack*>(info->si_value.sival_ptr);
  _Unwind_Backtrace(note_frame, stack);
  stack->noted.store(true, std::memory_order_release);
  errno = before;
}

// 0: all are taken.
int take_signal() {
  // Keeps its handler for ever, because a thread may answer late.
  static const int taken = [] {
    for (int number = SIGRTMAX; number >= SIGRTMIN; --number) {
      struct sigaction now {};
      if (sigaction(number, nullptr, &now) != 0 || (now.sa_flags & SA_SIGINFO) != 0) continue;
      if (now.sa_handler != SIG_DFL) continue;
      struct sigaction ours {};
      ours.sa_sigaction = note_stack;
      ours.sa_flags = SA_SIGINFO | SA_RESTART;
      sigfillset(&ours.sa_mask);
      if (sigaction(number, &ours, nullptr) == 0) return number;
    }
    return 0;
  }();
  return taken;
}

bool blocks(pid_t thread, int signal) {
  std::ifstream status("/proc/self/task/" + std::to_string(thread) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("SigBlk:")) continue;
    const auto mask = std::strtoull(line.c_str() + 7, nullptr, 16);  // NOLINT(cert-err34-c): the kernel's
    return (mask >> static_cast<unsigned>(signal - 1) & 1U) != 0;
  }
  return true;
}

bool ask(NotedStack& stack, int signal) {
  siginfo_t info{};
  info.si_signo = signal;
  info.si_code = SI_QUEUE;
  info.si_pid = getpid();
  info.si_uid = getuid();
  info.si_value.sival_ptr = &stack;
  return syscall(SYS_rt_tgsigqueueinfo, getpid(), stack.thread, signal, &info) == 0;
}

// Never freed: a thread that answers late writes to them.
NotedStack* new_stacks(std::size_t count) {
  static Mutex mutex;
  static auto& kept = *new std::vector<std::unique_ptr<NotedStack[]>>;
  const MutexLock lock(mutex);
  return kept.emplace_back(std::make_unique<NotedStack[]>(count)).get();
}

std::string hex_text(std::uintptr_t value) {
  std::ostringstream text;
  text.imbue(std::locale::classic());
  text << "+0x" << std::hex << value;
  return text.str();
}

// "c10d::Work::wait()+0x1f (libtorch_cpu.so+0x81c2)". The second is what addr2line takes.
std::string frame_text(std::uintptr_t address, bool innermost) {
  // A return address may belong to the next function already.
  const std::uintptr_t inside = innermost ? address : address - 1;
  Dl_info found{};
  // NOLINTNEXTLINE(performance-no-int-to-ptr): dladdr() takes any address
  if (dladdr(reinterpret_cast<const void*>(inside), &found) == 0 || found.dli_fname == nullptr) return "?";
  const std::string file = found.dli_fname;
  std::string where =
      file.substr(file.rfind('/') + 1) + hex_text(inside - reinterpret_cast<std::uintptr_t>(found.dli_fbase));
  if (found.dli_sname == nullptr) return where;
  int refused = 0;
  const std::unique_ptr<char, void (*)(void*)> plain(
      abi::__cxa_demangle(found.dli_sname, nullptr, nullptr, &refused), std::free);
  return std::string(plain ? plain.get() : found.dli_sname) +
         hex_text(address - reinterpret_cast<std::uintptr_t>(found.dli_saddr)) + " (" + where + ")";
}

}  // namespace

std::string own_stacks(SteadyTime end) {
  const int signal = take_signal();
  if (signal == 0) return "no stack was read: all real-time signals are in use\n";
  const std::vector<pid_t> threads = thread_ids(getpid());
  const std::size_t count = std::min(threads.size(), kMostOwnThreads);
  NotedStack* const stacks = new_stacks(count);
  const auto self = static_cast<pid_t>(syscall(SYS_gettid));
  for (std::size_t i = 0; i < count; ++i) {
    stacks[i].thread = threads[i];
    stacks[i].asked = threads[i] != self && !blocks(threads[i], signal) && ask(stacks[i], signal);
  }
  const SteadyTime last = std::min(end, Clock::real().now() + kToNote);
  const auto misses = [&] {
    return std::any_of(stacks, stacks + count, [](const NotedStack& one) {
      return one.asked && !one.noted.load(std::memory_order_acquire);
    });
  };
  while (misses() && Clock::real().now() < last) std::this_thread::sleep_for(1ms);
  std::string text;
  std::size_t left_out = threads.size() - count;
  for (std::size_t i = 0; i < count; ++i) {
    const NotedStack& stack = stacks[i];
    if (!stack.asked) {
      left_out += stack.thread == self ? 0 : 1;
      continue;
    }
    text += "thread " + std::to_string(stack.thread) + "\n";
    if (!stack.noted.load(std::memory_order_acquire)) {
      text += "  it does not answer\n";
      continue;
    }
    for (std::size_t k = kFramesOfHandler; k < stack.count; ++k) {
      text += "  #" + std::to_string(k - kFramesOfHandler) + " " +
              printable(frame_text(stack.frames[k], k == kFramesOfHandler), 1000) + "\n";
    }
  }
  if (left_out > 0) text += "left out, for most block signals: " + std::to_string(left_out) + " threads\n";
  return text;
}

}}  // namespace holdfast::v0_2
