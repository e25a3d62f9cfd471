// The points of a traced life at which a process is killed or held. By day: after the first call of each kind and after
// every fourth one, and before every eighth of these. The disk before a call is the one after the call before it, unless
// another thread comes between. HOLDFAST_NIGHTLY=1 takes both moments of every call.
//
// Threads: free functions, any thread.
#pragma once

#include <cstddef>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "support/nightly.h"
#include "support/syscall_tracer.h"

namespace holdfast::test {

struct CallPoint {
  std::size_t number;  // of the call, from 1
  Moment moment;
};

// The system call, and what its file is for: "renameat2 tmp-a".
inline std::string kind_of(const ChangingCall& call) {
  const std::string file = std::filesystem::path(call.path).filename();
  return call.name + " " + file.substr(0, file.find_first_of("0123456789"));
}

inline std::vector<CallPoint> points_of(const std::vector<ChangingCall>& calls) {
  std::vector<CallPoint> points;
  std::set<std::string> seen;
  std::size_t taken = 0;
  for (std::size_t number = 1; number <= calls.size(); ++number) {
    const bool first = seen.insert(kind_of(calls[number - 1])).second;
    if (!nightly() && !first && number % 4 != 0) continue;
    if (nightly() || taken++ % 8 == 0) points.push_back({number, Moment::before});
    points.push_back({number, Moment::after});
  }
  return points;
}

}  // namespace holdfast::test
