// Runs a user's command by `sh -c` beside the training, in a process group of its own and without standard
// input: whatever becomes of it, the training goes on. How it ended is logged. One that still runs at the end
// is left to itself.
//
// Errors: none; what fails is logged. Threads: one.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace holdfast::inline v1::internal {

class RiskHook {
 public:
  void start(const std::string& command) noexcept;
  // Says how those ended that have. True while one runs.
  bool look() noexcept;

 private:
  std::vector<pid_t> running_;
};

}  // namespace holdfast::inline v1::internal
