// For threads that work beside the training. Threads: the calling thread alone.
#pragma once

#include <sched.h>

namespace holdfast { inline namespace v0_2 {

// From now on this thread never takes the core of another one when it is woken: it waits for a free core or for its
// turn (SCHED_BATCH, sched(7)). Where all cores compute, the training thread that wakes it would stand for a few
// milliseconds. Threads that it starts inherit this. Ignores a system that refuses.
inline void work_beside_training() noexcept {
  const sched_param none{};
  static_cast<void>(sched_setscheduler(0, SCHED_BATCH, &none));
}

}}  // namespace holdfast::v0_2
