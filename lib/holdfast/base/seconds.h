// Times as a number of seconds, for messages, metrics and formulas. Threads: plain functions.
#pragma once

#include "holdfast/base/clock.h"

namespace holdfast { inline namespace v0_2 {

inline double in_seconds(Duration time) { return std::chrono::duration<double>(time).count(); }
// Since the Unix epoch.
inline double in_seconds(WallTime time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

}}  // namespace holdfast::v0_2
