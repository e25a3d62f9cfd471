#include "holdfast/interruption/stop_signals.h"

#include <string>

#include "holdfast/base/env.h"
#include "holdfast/base/error.h"
#include "holdfast/interruption/internal/signal_latch.h"

namespace holdfast { inline namespace v0_2 {

StopSignals stop_signals() {
  const auto list = env_text(kEnvStopSignals);
  // Early handlers read the same list before main(), and take a malformed one for the default. Here it can be
  // reported.
  const auto found = internal::parse_stop_signals(list ? list->c_str() : nullptr);
  if (!found) {
    throw UsageError(
        "environment variable " + std::string(kEnvStopSignals.name) + "=" + *list +
        ": expected a list such as USR1 or HUP,USR2 of the signals TERM, INT, HUP, USR1, USR2, XCPU");
  }
  return *found;
}

}}  // namespace holdfast::v0_2
