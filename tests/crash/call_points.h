// The points of a traced life at which a process is killed or held: after each call, and before every eighth. The disk
// before a call is the one after the call before it, unless another thread comes between: HOLDFAST_NIGHTLY=1 takes both
// moments of every call.
//
// Threads: free function, any thread.
#pragma once

#include <cstddef>
#include <vector>

#include "support/nightly.h"
#include "support/syscall_tracer.h"

namespace holdfast::test {

struct CallPoint {
  std::size_t number;  // of the call, from 1
  Moment moment;
};

inline std::vector<CallPoint> points_of(std::size_t calls) {
  std::vector<CallPoint> points;
  for (std::size_t number = 1; number <= calls; ++number) {
    if (nightly() || number % 8 == 1) points.push_back({number, Moment::before});
    points.push_back({number, Moment::after});
  }
  return points;
}

}  // namespace holdfast::test
