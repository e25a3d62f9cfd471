// Ends ranks that outlive their launcher. When the launcher dies, the kernel sends them SIGTERM, but a rank
// that hangs would stay for ever. A small process waits for the launcher's end, and later kills the remaining
// processes of the ranks' groups.
//
// Errors: IoError if it cannot be started. Threads: make it before other threads start.
#pragma once

#include <sys/types.h>

#include "holdfast/base/clock.h"

namespace holdfast { inline namespace v0_2 {

class RankGuardian {
 public:
  // `grace`: from the launcher's death to SIGKILL.
  explicit RankGuardian(Duration grace);
  ~RankGuardian();  // call it when no rank is left
  RankGuardian(const RankGuardian&) = delete;
  RankGuardian& operator=(const RankGuardian&) = delete;

  // A rank writes its process number here before it runs anything (ProcessOptions::announced_to): the
  // launcher may die at any moment after. Requires that the rank leads its own group.
  int ranks_to_guard() const { return told_; }

  // A child of the launcher was reaped. If it was the guardian, its number may soon be another process's.
  void reaped(pid_t who);

 private:
  pid_t id_ = -1;
  int told_ = -1;  // a pipe of process numbers; its end tells the guardian that the launcher is gone
};

}}  // namespace holdfast::v0_2
