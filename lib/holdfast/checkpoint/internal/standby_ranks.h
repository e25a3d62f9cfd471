// The other ranks of a standby, as rank 0 needs them while it waits for the run (standby_wait.h).
//
// Errors: as RankChannel; another rank's error with its exit code. Threads: the training thread.
#pragma once

#include <functional>

namespace holdfast { inline namespace v0_2 { namespace internal {

struct StandbyRanks {
  std::function<void()> stand_by;  // called before each wait: they wait, too
  // True while the end of another rank's machine is announced. Throws if a rank is lost, or told to stop.
  std::function<bool()> one_ends;
};

}}}  // namespace holdfast::v0_2::internal
