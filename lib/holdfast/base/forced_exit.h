// A second Ctrl-C ends the process at once (exit code 130), but never in the middle of a rename: whoever is
// about to do something that must not be cut in two holds one of these. The rename methods of the real file
// system do so themselves; a caller needs its own only to keep several operations together.
//
// While a guard lives, a forced exit that is asked for waits for the last guard to end. Guards nest, and
// threads may hold them side by side. Keep them short: the person at the keyboard is waiting.
// Threads: any. force_exit() is async-signal-safe.
#pragma once

namespace holdfast::inline v1 {

class HoldOffForcedExit {
 public:
  HoldOffForcedExit() noexcept;
  ~HoldOffForcedExit();
  HoldOffForcedExit(const HoldOffForcedExit&) = delete;
  HoldOffForcedExit& operator=(const HoldOffForcedExit&) = delete;
};

// Ends the process with ExitCode::forced, without destructors or exit handlers: now, or when the last guard
// ends, in which case it returns.
void force_exit() noexcept;

}  // namespace holdfast::inline v1
