// Finds out which rank is lost, and says it for a GroupError. All code that notices a loss uses this.
//
//   it came to `alive`: it has noticed the loss too   it may have left by now; never named
//   gone/<r>: it left while an exception passed       "ended with an error of its own"
//   no sign of life (pulse.h)                         "died, hangs or cannot be reached"
//   none of these                                     busy: it notices at its next collective
//
// A rank that has lost rank 0 does not come to `alive`, because rank 0 has to name it.
// who() uses the verdict of the signs of life. Without one, all ranks get four seconds to answer; those that
// neither answer nor give signs are named. Rank 0 returns a moment later than the others (`told`), because
// the store may end with it. Errors: std::bad_alloc. Threads: any.
#pragma once

#include <memory>
#include <string>

#include "holdfast/base/export.h"
#include "holdfast/base/mutex.h"
#include "holdfast/ranks/pulse.h"
#include "holdfast/ranks/store_line.h"

namespace holdfast { inline namespace v0_2 {

// What a rank leaves in the store when it ends by an error.
inline std::string gone_key(int rank) { return "gone/" + std::to_string(rank); }

class HOLDFAST_EXPORT RollCall {
 public:
  // `pulse` may be null, or end earlier than this object.
  RollCall(StoreLine line, std::weak_ptr<const Pulse> pulse, int rank, int world_size);
  // The first answer is kept. Takes up to 15 seconds.
  std::string who();

 private:
  std::string call(const Pulse* pulse);
  std::string name(const Pulse* pulse, const std::vector<int>& lost, const std::vector<int>& absent);
  void let_all_hear(const std::vector<int>& deaf);

  Mutex mutex_;
  StoreLine line_;
  const std::weak_ptr<const Pulse> pulse_;
  const int rank_;
  const int world_size_;
  std::string who_ HOLDFAST_GUARDED_BY(mutex_);
};

}}  // namespace holdfast::v0_2
