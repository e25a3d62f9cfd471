// A second Ctrl-C ends the process at once (exit code 130), but never in the middle of a rename. Code that
// must not be interrupted holds a HoldOffForcedExit. The rename methods of the real file system do so
// themselves; a caller needs a guard only to keep several operations together.
//
// While a guard lives, force_exit() waits for the last guard to end. Guards nest, and several threads may
// hold them at once. Hold them briefly: a person waits for the exit.
// Threads: any. force_exit() is async-signal-safe.
#pragma once

#include "holdfast/base/export.h"

namespace holdfast { inline namespace v0_2 {

class HOLDFAST_EXPORT HoldOffForcedExit {
 public:
  HoldOffForcedExit() noexcept;
  ~HoldOffForcedExit();
  HoldOffForcedExit(const HoldOffForcedExit&) = delete;
  HoldOffForcedExit& operator=(const HoldOffForcedExit&) = delete;
};

// Ends the process with ExitCode::forced, without destructors and exit handlers. While a guard lives it
// returns; the end of the last guard then ends the process.
HOLDFAST_EXPORT void force_exit() noexcept;

}}  // namespace holdfast::v0_2
