#include "holdfast/interruption/internal/signal_latch.h"

#include <sys/eventfd.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <utility>

#include "holdfast/base/forced_exit.h"

namespace holdfast::inline v1::internal {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kSecondCtrlC = 10 * kSecond;
// A wrapper that forwards the terminal's signal makes two of one key press.
constexpr std::int64_t kForwarded = kSecond / 5;

struct Latch {
  std::atomic<std::uint32_t> count;
  std::atomic<std::uint32_t> consumed;
  std::atomic<std::int64_t> first_ns;
  std::atomic<std::int64_t> last_ns;
  std::atomic<int> sender;
  struct sigaction earlier;
};

constinit std::array<Latch, kHeardSignals.size()> latches{};
constinit std::atomic<int> event_fd{-1};
constinit std::atomic<pid_t> owner{0};
constinit std::atomic<bool> terminal{false};
constinit int users = 0;
constinit bool pipe_ignored = false;
static_assert(std::atomic<std::int64_t>::is_always_lock_free && std::atomic<pid_t>::is_always_lock_free);

std::int64_t monotonic_now() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * kSecond + now.tv_nsec;
}

std::size_t index_of(int signal) noexcept {
  std::size_t index = 0;
  while (kHeardSignals[index] != signal) ++index;
  return index;
}

void call_earlier(const struct sigaction& earlier, int signal, siginfo_t* info, void* context) noexcept {
  if ((earlier.sa_flags & SA_SIGINFO) != 0) {
    if (earlier.sa_sigaction != nullptr) earlier.sa_sigaction(signal, info, context);
  } else if (earlier.sa_handler != SIG_DFL && earlier.sa_handler != SIG_IGN) {
    earlier.sa_handler(signal);
  }
}

bool is_default(const struct sigaction& action) noexcept {
  return (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == SIG_DFL;
}

void leave_at_once() noexcept {
  static constexpr char kText[] = "\nholdfast: left at once; the newest acknowledged checkpoint stands\n";
  (void)!write(STDERR_FILENO, kText, sizeof kText - 1);
  force_exit();
}

extern "C" void holdfast_on_signal(int signal, siginfo_t* info, void* context) {
  const int saved = errno;
  Latch& latch = latches[index_of(signal)];
  if (getpid() != owner.load()) {
    // A child between fork and exec: its signals are not the parent's.
    if (is_default(latch.earlier)) {
      ::signal(signal, SIG_DFL);
      raise(signal);
    } else {
      call_earlier(latch.earlier, signal, info, context);
    }
    errno = saved;
    return;
  }
  const std::int64_t now = monotonic_now();
  const bool from_kernel = info->si_code == SI_KERNEL;
  std::int64_t none = 0;
  latch.first_ns.compare_exchange_strong(none, now);
  latch.sender.store(from_kernel ? 0 : info->si_pid);
  const std::int64_t before = latch.last_ns.exchange(now);
  latch.count.fetch_add(1);
  eventfd_write(event_fd.load(), 1);
  if (signal == SIGINT && terminal.load() && before != 0 && now - before <= kSecondCtrlC &&
      (from_kernel || now - before >= kForwarded)) {
    leave_at_once();
  }
  call_earlier(latch.earlier, signal, info, context);
  errno = saved;
}

bool is_ours(const struct sigaction& action) noexcept {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == holdfast_on_signal;
}

void begin_anew() noexcept {
  for (Latch& latch : latches) {
    latch.count = 0;
    latch.consumed = 0;
    latch.first_ns = 0;
    latch.last_ns = 0;
  }
  users = 0;
  event_fd = -1;  // the parent's: its eventfd is shared with us, so ours must be another
}

}  // namespace

bool install_signal_handlers() noexcept {
  if (owner.load() != getpid()) begin_anew();
  if (event_fd.load() < 0) event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (event_fd.load() < 0) return false;
  terminal = isatty(STDIN_FILENO) == 1 || isatty(STDERR_FILENO) == 1;
  owner = getpid();
  if (users++ > 0) return true;
  // The Ctrl-C that ends `| tee` must not end us at the next line we log, before the commit.
  struct sigaction pipe {};
  if (sigaction(SIGPIPE, nullptr, &pipe) == 0 && is_default(pipe)) {
    pipe.sa_handler = SIG_IGN;
    pipe_ignored = sigaction(SIGPIPE, &pipe, nullptr) == 0;
  }
  struct sigaction ours {};
  ours.sa_sigaction = holdfast_on_signal;
  ours.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
  sigemptyset(&ours.sa_mask);
  for (std::size_t i = 0; i < kHeardSignals.size(); ++i) {
    struct sigaction current {};
    sigaction(kHeardSignals[i], nullptr, &current);
    // Still there under somebody's handler, or inherited by a fork.
    if (is_ours(current)) continue;
    latches[i].earlier = current;
    sigaction(kHeardSignals[i], &ours, nullptr);
  }
  return true;
}

void remove_signal_handlers() noexcept {
  if (owner.load() != getpid() || users == 0 || --users > 0) return;
  for (std::size_t i = 0; i < kHeardSignals.size(); ++i) {
    struct sigaction current {};
    sigaction(kHeardSignals[i], nullptr, &current);
    if (is_ours(current)) sigaction(kHeardSignals[i], &latches[i].earlier, nullptr);
  }
  if (std::exchange(pipe_ignored, false)) ::signal(SIGPIPE, SIG_DFL);
}

// No remove ever matches this install.
void install_early_signal_handlers() noexcept { install_signal_handlers(); }

int signal_event() noexcept { return event_fd.load(); }

HeardSignal heard_signal(std::size_t index) noexcept {
  const Latch& latch = latches[index];
  // The count first: what it counts is then in the other fields.
  const std::uint32_t count = latch.count.load();
  return {.count = count, .first_ns = latch.first_ns.load(), .sender = latch.sender.load()};
}

std::uint32_t consumed_signals(std::size_t index) noexcept { return latches[index].consumed.load(); }

void consume_signals(std::size_t index, std::uint32_t count) noexcept {
  latches[index].consumed = count;
  if (latches[index].count.load() == count) latches[index].first_ns = 0;  // a later one keeps its moment
}

bool at_a_terminal() noexcept { return terminal.load(); }

}  // namespace holdfast::inline v1::internal
