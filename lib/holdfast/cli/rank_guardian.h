// Ends ranks that outlive their launcher. When the launcher dies, the kernel sends them SIGTERM, but a rank
// that hangs would stay for ever. A small process waits for the launcher's end, and later kills the remaining
// processes of the ranks' groups.
//
// Errors: IoError if it cannot be started. Threads: make it before other threads start.
#pragma once

#include <sys/types.h>

#include "holdfast/base/clock.h"

namespace holdfast { inline namespace v1 {

class RankGuardian {
 public:
  // `grace`: from the launcher's death to SIGKILL.
  explicit RankGuardian(Duration grace);
  ~RankGuardian();  // call it when no rank is left
  RankGuardian(const RankGuardian&) = delete;
  RankGuardian& operator=(const RankGuardian&) = delete;

  // Requires a child of this process that leads its own group.
  void guard(pid_t rank) const;

 private:
  pid_t id_ = -1;
  int told_ = -1;  // a pipe whose end tells the guardian that the launcher is gone
};

}}  // namespace holdfast::v1
