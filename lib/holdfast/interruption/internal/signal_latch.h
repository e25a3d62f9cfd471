// The process's signal handlers and the signals they have received. Plain zero-initialised globals, because
// handlers may be installed before any constructor has run and must work until the process ends.
//
// A stop signal that nobody listens to waits for kHoldSeconds, because a Checkpointer may be made soon, or
// the process may be about to end. Then it has the effect that it would have without these handlers.
//
// Sanitizers never instrument this code, because it runs before they are ready.
// Errors: return values. Threads: heard_signal() and consume_signals() are async-signal-safe; install and
// remove by one thread at a time.
#pragma once

#include <array>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "holdfast/base/export.h"
#include "holdfast/interruption/stop_signals.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

inline constexpr std::array<int, 6> kHeardSignals{SIGTERM, SIGINT, SIGUSR1, SIGHUP, SIGUSR2, SIGXCPU};
// Longer than a start takes until its Checkpointer, and shorter than most grace periods.
inline constexpr int kHoldSeconds = 15;

// Parses a list as stop_signals.h describes; nullptr or "" gives the default. nullopt for an unknown name.
std::optional<StopSignals> parse_stop_signals(const char* list) noexcept;

struct HeardSignal {
  std::uint32_t count = 0;    // since the process began
  std::int64_t first_ns = 0;  // CLOCK_MONOTONIC of the first one that no source has consumed
  int sender = 0;             // process id; 0: the kernel (a terminal)
  bool stops = false;         // by the list of the last install
};

// Counted: each install needs one remove. False with errno if no eventfd can be made. In a forked child it
// starts afresh.
bool install_signal_handlers(const StopSignals& stops) noexcept;
void remove_signal_handlers() noexcept;
// Like install, but without a remove. A malformed list counts as the default; a SignalSource reports it
// later.
HOLDFAST_EXPORT void install_early_signal_handlers(char** environment) noexcept;

// From here to the matching end somebody reports stop signals, and acts on them. Counted. At the end of the
// last one a stop signal that was not reported begins to wait.
void begin_listening() noexcept;
void end_listening() noexcept;
void note_reported(std::size_t index, std::uint32_t count) noexcept;

int signal_event() noexcept;                           // eventfd, or -1
HeardSignal heard_signal(std::size_t index) noexcept;  // index into kHeardSignals
// Where a new source begins, so that it does not repeat what an earlier source has reported.
std::uint32_t consumed_signals(std::size_t index) noexcept;
void consume_signals(std::size_t index, std::uint32_t count) noexcept;
bool at_a_terminal() noexcept;

}}}  // namespace holdfast::v0_2::internal
