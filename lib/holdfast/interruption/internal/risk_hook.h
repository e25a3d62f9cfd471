// Runs a user's command with `sh -c` while training continues, in its own process group, without standard
// input, and with the environment of base/hook_context.h. Its result is only logged. A command that still
// runs at the end of the process keeps running, also under `holdfast supervise`: it gets no
// HOLDFAST_SUPERVISOR, so the processes that it starts do not belong to the supervised life.
//
// Errors: none; failures are logged. Threads: one.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "holdfast/base/hook_context.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

struct RiskCommand {
  std::string text;
  HookContext context = {.hook = kRiskHookName};
};

class RiskHook {
 public:
  void start(const RiskCommand& command) noexcept;
  // Logs the results of commands that have ended. True while one runs.
  bool reap() noexcept;

 private:
  std::vector<pid_t> running_;
};

}}}  // namespace holdfast::v0_2::internal
