#include "holdfast/cli/durations.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>

#include "holdfast/base/env.h"
#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/seconds.h"
#include "holdfast/base/text.h"
#include "holdfast/base/utf8.h"
#include "holdfast/interruption/signal_source.h"

namespace holdfast { inline namespace v0_2 {

Duration time_to_leave() {
  // The supervisor must outlive its command's own grace period.
  return env_duration(kEnvTermGrace).value_or(kDefaultTermGrace) + std::chrono::seconds(5);
}

Duration longest_time_to_leave() {
  if (env_duration(kEnvTermGrace)) return time_to_leave();
  // A run whose grace period is a guess may need longer, and killing it would lose its last save.
  return std::max<Duration>(time_to_leave(), std::chrono::minutes(2));
}

void add_time(CLI::App& command, const char* name, std::string& value, const std::string& help) {
  command.add_option(name, value, help)->type_name("TIME")->capture_default_str();
}

Duration duration_of(const std::string& option, const std::string& text) {
  const auto duration = parse_duration(text);
  if (!duration) throw UsageError(option + " '" + printable(text) + "': a time like 30s or 2min is needed");
  return *duration;
}

std::string share_text(Duration part, Duration whole) {
  return format_log("{:.1f} %",
                    {whole > Duration::zero() ? 100 * in_seconds(part) / in_seconds(whole) : 0.0});
}

}}  // namespace holdfast::v0_2
