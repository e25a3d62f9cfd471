#include "holdfast/base/hook_context.h"

#include "holdfast/base/text.h"

namespace holdfast { inline namespace v0_2 {

std::map<std::string, std::string> to_environment(const HookContext& context) {
  // An environment entry ends at NUL, and hooks read the reason as one line.
  std::string reason = context.reason;
  for (char& letter : reason) {
    if (letter == '\0' || letter == '\n') letter = ' ';
  }
  return {{kHookVariable, context.hook},
          {"HOLDFAST_RUN_DIRECTORY", context.directory},
          // Hooks read an empty variable as "unknown"; a missing one would be inherited from this process.
          {"HOLDFAST_STEP", context.step < 0 ? "" : std::to_string(context.step)},
          {"HOLDFAST_EXIT_CODE", context.exit_code ? std::to_string(*context.exit_code) : ""},
          {"HOLDFAST_REASON", std::move(reason)},
          {"HOLDFAST_DEADLINE", context.deadline ? format_utc(*context.deadline) : ""}};
}

}}  // namespace holdfast::v0_2
