#include "holdfast/interruption/internal/signal_latch.h"

#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <utility>

#include "holdfast/base/env.h"
#include "holdfast/base/forced_exit.h"
#include "holdfast/interruption/internal/alternate_stack.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kSecondCtrlC = 10 * kSecond;
// A wrapper that forwards the terminal's SIGINT turns one key press into two signals.
constexpr std::int64_t kForwarded = kSecond / 5;

struct Latch {
  std::atomic<std::uint32_t> count;
  std::atomic<std::uint32_t> consumed;
  std::atomic<std::uint32_t> reported;
  std::atomic<std::int64_t> first_ns;
  std::atomic<std::int64_t> last_ns;
  std::atomic<int> sender;
  std::atomic<bool> stops;
  std::atomic<int> hold;  // while it waits for a listener: the kernel's timer and 1
  struct sigaction earlier;
};

// constinit: a signal may arrive before any constructor has run.
constinit std::array<Latch, kHeardSignals.size()> latches{};
constinit std::atomic<int> event_fd{-1};
constinit std::atomic<pid_t> owner{0};
constinit std::atomic<bool> terminal{false};
constinit std::atomic<int> listeners{0};
constinit int users = 0;
// The Ctrl-C that also ends `| tee` must not kill this process by SIGPIPE before its commit. Beyond a limit
// of file sizes (ulimit -f) a write must fail, so that a save does, and the log says why.
constexpr std::array kIgnored{SIGPIPE, SIGXFSZ};
constinit std::array<bool, kIgnored.size()> ignored{};
// Only lock-free atomics are allowed in a signal handler.
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
  // write() and _exit() alone: everything else may hold a lock that the interrupted code owns.
  static constexpr char kText[] = "\nholdfast: left at once; the newest acknowledged checkpoint stands\n";
  (void)!write(STDERR_FILENO, kText, sizeof kText - 1);
  force_exit();
}

// Async-signal-safe, as the two below. By system calls, because the C library's functions for timers are not.
void release(Latch& latch) noexcept {
  const int timer = latch.hold.exchange(0);
  if (timer > 0) syscall(SYS_timer_delete, timer - 1);
}

void give_back(int signal) noexcept {
  static constexpr char kText[] =
      "\nholdfast: the process ends by a stop signal, because no Checkpointer listens to it\n";
  (void)!write(STDERR_FILENO, kText, sizeof kText - 1);
  ::signal(signal, SIG_DFL);
  raise(signal);
  // The kernel spares the first process of a container.
  if (getpid() == 1) _exit(128 + signal);
}

// The timer repeats the signal, so the same handler hears its end.
void hold(Latch& latch, int signal) noexcept {
  int none = 0;
  if (!latch.hold.compare_exchange_strong(none, -1)) return;
  struct sigevent end {};
  end.sigev_notify = SIGEV_SIGNAL;
  end.sigev_signo = signal;
  end.sigev_value.sival_ptr = &latches;
  int timer = 0;
  if (syscall(SYS_timer_create, CLOCK_MONOTONIC, &end, &timer) == 0) {
    latch.hold.store(timer + 1);
    itimerspec when{};
    when.it_value.tv_sec = kHoldSeconds;
    if (syscall(SYS_timer_settime, timer, 0, &when, nullptr) == 0) return;
  }
  give_back(signal);
}

bool ends_hold(const siginfo_t* info) noexcept {
  return info->si_code == SI_TIMER && info->si_value.sival_ptr == &latches;
}

// A handler, and not a blocked mask: threads that a library made before the mask would let SIGTERM kill the
// process.
extern "C" void holdfast_on_signal(int signal, siginfo_t* info, void* context) {
  // The interrupted code may be about to read errno.
  const int saved = errno;
  Latch& latch = latches[index_of(signal)];
  if (getpid() != owner.load()) {
    // In a child between fork and exec the signal is not the parent's.
    if (is_default(latch.earlier)) {
      // Raised again with the default action, so that the child dies as if this handler did not exist.
      ::signal(signal, SIG_DFL);
      raise(signal);
    } else {
      call_earlier(latch.earlier, signal, info, context);
    }
    errno = saved;
    return;
  }
  if (ends_hold(info)) {
    release(latch);
    if (listeners.load() == 0) give_back(signal);
    errno = saved;
    return;
  }
  const std::int64_t now = monotonic_now();
  // Ctrl-C at a terminal comes from the kernel, kill() from a process.
  const bool from_kernel = info->si_code == SI_KERNEL;
  std::int64_t none = 0;
  // Only the first arrival counts, because the grace period begins with it.
  latch.first_ns.compare_exchange_strong(none, now);
  latch.sender.store(from_kernel ? 0 : info->si_pid);
  const std::int64_t before = latch.last_ns.exchange(now);
  latch.count.fetch_add(1);
  // Wakes the monitor's thread. eventfd_write() is a write(), which is allowed in a handler.
  eventfd_write(event_fd.load(), 1);
  if (signal == SIGINT && terminal.load() && before != 0 && now - before <= kSecondCtrlC &&
      (from_kernel || now - before >= kForwarded)) {
    leave_at_once();
  }
  // An earlier handler hears it below.
  if (listeners.load() == 0 && latch.stops.load() && is_default(latch.earlier)) hold(latch, signal);
  // Programs and libraries that handled this signal before still hear it.
  call_earlier(latch.earlier, signal, info, context);
  errno = saved;
}

bool is_ours(const struct sigaction& action) noexcept {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == holdfast_on_signal;
}

constexpr std::uint32_t bit(int signal) noexcept { return std::uint32_t{1} << signal; }

// Own loop, because the C library's functions may be a sanitizer's, which is not ready before main().
bool take(const char*& text, const char* word) noexcept {
  const char* at = text;
  for (; *word != '\0'; ++word, ++at) {
    if (*at != *word) return false;
  }
  text = at;
  return true;
}

// The signal whose name begins the list; 0: none.
int take_name(const char*& list) noexcept {
  constexpr std::array<std::pair<const char*, int>, 6> kNames{{{"TERM", SIGTERM},
                                                               {"INT", SIGINT},
                                                               {"HUP", SIGHUP},
                                                               {"USR1", SIGUSR1},
                                                               {"USR2", SIGUSR2},
                                                               {"XCPU", SIGXCPU}}};
  take(list, "SIG");
  for (const auto& [name, signal] : kNames) {
    if (take(list, name)) return signal;
  }
  return 0;
}

bool is_heard(int signal, const struct sigaction& current, const StopSignals& stops) noexcept {
  // These three are always heard: TERM and INT stop, USR1 saves.
  // Also SIGINT where a shell ignores it, as it does for background jobs.
  if (signal == SIGTERM || signal == SIGINT || signal == SIGUSR1) return true;
  // nohup ignores SIGHUP, and that wish stands unless the variable names the signal.
  const bool ignored = (current.sa_flags & SA_SIGINFO) == 0 && current.sa_handler == SIG_IGN;
  return stops.has(signal) && (!ignored || stops.is_named(signal));
}

void begin_anew() noexcept {
  for (Latch& latch : latches) {
    latch.count = 0;
    latch.consumed = 0;
    latch.reported = 0;
    latch.first_ns = 0;
    latch.last_ns = 0;
    latch.hold = 0;  // a child inherits no timers
  }
  users = 0;
  listeners = 0;
  event_fd = -1;  // the parent shares that eventfd, so the child needs its own
}

}  // namespace

std::optional<StopSignals> parse_stop_signals(const char* list) noexcept {
  constexpr std::uint32_t kAlways = bit(SIGTERM) | bit(SIGINT);
  if (list == nullptr || *list == '\0')
    return StopSignals(kAlways | bit(SIGHUP) | bit(SIGUSR2) | bit(SIGXCPU), false);
  std::uint32_t signals = kAlways;
  while (true) {
    const int signal = take_name(list);
    if (signal == 0) return std::nullopt;
    signals |= bit(signal);
    if (*list == '\0') return StopSignals(signals, true);
    if (*list++ != ',') return std::nullopt;
  }
}

bool install_signal_handlers(const StopSignals& stops) noexcept {
  give_this_thread_an_alternate_stack();
  if (owner.load() != getpid()) begin_anew();
  if (event_fd.load() < 0) event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (event_fd.load() < 0) return false;
  terminal = isatty(STDIN_FILENO) == 1 || isatty(STDERR_FILENO) == 1;
  // Stored after the eventfd exists: a handler that sees this owner writes to it.
  owner = getpid();
  for (std::size_t i = 0; i < kHeardSignals.size(); ++i) latches[i].stops = stops.has(kHeardSignals[i]);
  // Handlers belong to the process, so only its first user installs them.
  if (users++ > 0) return true;
  for (std::size_t i = 0; i < kIgnored.size(); ++i) {
    struct sigaction current {};
    if (sigaction(kIgnored[i], nullptr, &current) != 0 || !is_default(current)) continue;
    current.sa_handler = SIG_IGN;
    ignored[i] = sigaction(kIgnored[i], &current, nullptr) == 0;
  }
  struct sigaction ours {};
  ours.sa_sigaction = holdfast_on_signal;
  // SA_RESTART keeps system calls of the training from failing with EINTR.
  ours.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
  sigemptyset(&ours.sa_mask);
  for (std::size_t i = 0; i < kHeardSignals.size(); ++i) {
    struct sigaction current {};
    sigaction(kHeardSignals[i], nullptr, &current);
    // Already installed: below another program's handler, or inherited by a fork.
    if (is_ours(current)) continue;
    if (!is_heard(kHeardSignals[i], current, stops)) continue;
    latches[i].earlier = current;
    sigaction(kHeardSignals[i], &ours, nullptr);
  }
  return true;
}

void remove_signal_handlers() noexcept {
  // A forked child leaves the parent's handlers as they are.
  if (owner.load() != getpid() || users == 0 || --users > 0) return;
  for (std::size_t i = 0; i < kHeardSignals.size(); ++i) {
    struct sigaction current {};
    sigaction(kHeardSignals[i], nullptr, &current);
    // A handler that another library has put on top stays.
    if (is_ours(current)) sigaction(kHeardSignals[i], &latches[i].earlier, nullptr);
  }
  for (std::size_t i = 0; i < kIgnored.size(); ++i) {
    if (std::exchange(ignored[i], false)) ::signal(kIgnored[i], SIG_DFL);
  }
}

// No remove ever matches this install: a late signal must not kill a program that has just finished.
void install_early_signal_handlers(char** environment) noexcept {
  const char* list = nullptr;
  for (char** variable = environment; *variable != nullptr; ++variable) {
    const char* rest = *variable;
    if (take(rest, kEnvStopSignals.name) && take(rest, "=")) list = rest;
  }
  const auto named = parse_stop_signals(list);
  install_signal_handlers(named ? *named : *parse_stop_signals(nullptr));
}

void begin_listening() noexcept {
  listeners.fetch_add(1);
  for (Latch& latch : latches) release(latch);
}

void end_listening() noexcept {
  // A forked child leaves the parent's signals alone.
  if (owner.load() != getpid() || listeners.fetch_sub(1) > 1) return;
  for (std::size_t i = 0; i < latches.size(); ++i) {
    Latch& latch = latches[i];
    const bool unheard = latch.stops.load() && latch.count.load() != latch.reported.load();
    if (unheard && is_default(latch.earlier)) hold(latch, kHeardSignals[i]);
  }
}

void note_reported(std::size_t index, std::uint32_t count) noexcept { latches[index].reported = count; }

int signal_event() noexcept { return event_fd.load(); }

HeardSignal heard_signal(std::size_t index) noexcept {
  const Latch& latch = latches[index];
  // The count first: the signals that it counts are then in the other fields.
  const std::uint32_t count = latch.count.load();
  return {.count = count,
          .first_ns = latch.first_ns.load(),
          .sender = latch.sender.load(),
          .stops = latch.stops.load()};
}

std::uint32_t consumed_signals(std::size_t index) noexcept { return latches[index].consumed.load(); }

void consume_signals(std::size_t index, std::uint32_t count) noexcept {
  latches[index].consumed = count;
  if (latches[index].count.load() == count) latches[index].first_ns = 0;  // a later signal keeps its time
}

bool at_a_terminal() noexcept { return terminal.load(); }

}}}  // namespace holdfast::v0_2::internal

namespace holdfast { inline namespace v0_2 {

bool StopSignals::has(int signal) const noexcept {
  return signal > 0 && signal < 32 && (signals_ & (std::uint32_t{1} << signal)) != 0;
}

}}  // namespace holdfast::v0_2
