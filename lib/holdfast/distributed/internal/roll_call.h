// Who is lost, in words for a GroupError: the one place that says it, for all that notice a loss.
//
// Not everybody who does not answer is lost, and not everybody who falls silent:
//
//   alive/<r>: it has noticed the loss as well     may have left by now; never named
//   gone/<r>: it left while an exception passed    "ended with an error of its own"
//   no sign of life (pulse.h)                      "died, hangs or cannot be reached"
//   none of these                                  busy: it will notice when it comes to its next collective
//
// So who() takes the verdict of the signs of life; as long as there is none, everybody has four seconds to
// answer, and those who do not are named when they give no sign either. Rank 0's comes back a moment later
// than the others' (told/<r>): the store may end with its process.
//
// Errors: only of memory. Threads: any.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "holdfast/distributed/internal/pulse.h"
#include "holdfast/distributed/internal/store_line.h"

namespace holdfast::inline v1 {

class RollCall {
 public:
  // `pulse` may be null, or end before.
  RollCall(StoreLine line, std::weak_ptr<const Pulse> pulse, int rank, int world_size);
  // The first answer holds for good. Takes up to a quarter of a minute.
  std::string who();

 private:
  std::string call(const Pulse* pulse);
  std::string name(const Pulse* pulse, const std::vector<int>& lost, const std::vector<int>& absent);
  void let_all_hear(const std::vector<int>& deaf);

  std::mutex mutex_;
  StoreLine line_;
  const std::weak_ptr<const Pulse> pulse_;
  const int rank_;
  const int world_size_;
  std::string who_;
};

}  // namespace holdfast::inline v1
