// Waits in real time until a Monitor has a stop or a deadline.
#pragma once

#include "holdfast/interruption/monitor.h"
#include "support/soon.h"

namespace holdfast::test {

inline bool heard(const Monitor& monitor) { return monitor.stop_requested() || monitor.deadline(); }

// At most 20 s (soon.h).
inline bool heard_soon(const Monitor& monitor) {
  return soon([&] { return heard(monitor); });
}

}  // namespace holdfast::test
