// The process's signal handlers and what they have heard. Plain zero-initialised globals, because handlers
// may be installed before any constructor has run and must work until the last moment.
//
// This file's code is never instrumented by sanitizers: it runs before they are ready.
// Threads: hear/take functions are async-signal-safe; install and remove by one thread at a time.
#pragma once

#include <array>
#include <csignal>
#include <cstddef>
#include <cstdint>

namespace holdfast::inline v1::internal {

inline constexpr std::array<int, 3> kHeardSignals{SIGTERM, SIGINT, SIGUSR1};

struct HeardSignal {
  std::uint32_t count = 0;    // since the process began
  std::int64_t first_ns = 0;  // CLOCK_MONOTONIC of the first one that nobody has consumed
  int sender = 0;             // process, 0: the kernel (a terminal)
};

// Counted: each install wants its remove. False with errno when there is no eventfd. In a forked child it
// begins anew.
bool install_signal_handlers() noexcept;
void remove_signal_handlers() noexcept;
// As install, and for good.
void install_early_signal_handlers() noexcept;

int signal_event() noexcept;                           // eventfd, or -1
HeardSignal heard_signal(std::size_t index) noexcept;  // index into kHeardSignals
// Where a new source begins: what an earlier one has told is not told again.
std::uint32_t consumed_signals(std::size_t index) noexcept;
void consume_signals(std::size_t index, std::uint32_t count) noexcept;
bool at_a_terminal() noexcept;

}  // namespace holdfast::inline v1::internal
