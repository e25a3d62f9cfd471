#include "holdfast/cli/durations.h"

#include <chrono>

#include "holdfast/base/env.h"
#include "holdfast/base/error.h"
#include "holdfast/base/text.h"
#include "holdfast/interruption/signal_source.h"
#include "holdfast/snapshot/utf8.h"

namespace holdfast::inline v1 {

Duration time_to_leave() {
  return env_duration(kEnvTermGrace).value_or(kDefaultTermGrace) + std::chrono::seconds(5);
}

Duration duration_of(const std::string& option, const std::string& text) {
  const auto duration = parse_duration(text);
  if (!duration) throw UsageError(option + " '" + printable(text) + "': a time like 30s or 2min is needed");
  return *duration;
}

}  // namespace holdfast::inline v1
