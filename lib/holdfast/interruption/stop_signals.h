// Which signals mean stop: SIGTERM and SIGINT always; SIGHUP, SIGUSR2 and SIGXCPU unless
// HOLDFAST_STOP_SIGNALS names others. SIGUSR1 means save and continue, unless the list names it.
//
//   HOLDFAST_STOP_SIGNALS=USR1          Slurm's --signal=USR1@120 is a stop; HUP, USR2, XCPU are not handled
//   HOLDFAST_STOP_SIGNALS=TERM,INT      only these two
//
// Names: TERM, INT, HUP, USR1, USR2, XCPU, with or without SIG. A SIGHUP, SIGUSR2 or SIGXCPU that was ignored
// when the program began (nohup) stays ignored unless the list names it.
//
// Errors: UsageError for another name. Threads: reads the environment (base/env.h).
#pragma once

#include <cstdint>

#include "holdfast/base/export.h"

namespace holdfast { inline namespace v0_2 {

class HOLDFAST_EXPORT StopSignals {
 public:
  StopSignals(std::uint32_t signals, bool named) noexcept : signals_(signals), named_(named) {}
  bool has(int signal) const noexcept;
  // True if the list names it; then it is handled even if it was ignored at the start.
  bool is_named(int signal) const noexcept { return named_ && has(signal); }

 private:
  std::uint32_t signals_;  // bit n: signal number n
  bool named_;
};

// From HOLDFAST_STOP_SIGNALS.
HOLDFAST_EXPORT StopSignals stop_signals();

}}  // namespace holdfast::v0_2
