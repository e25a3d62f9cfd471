// For a thread that the training thread wakes and that nobody waits for. Threads: the calling thread alone.
#pragma once

#include <sched.h>

namespace holdfast { inline namespace v0_2 {

// From now on this thread never takes the core of another one when it is woken: it waits for a free core or
// for its turn (SCHED_BATCH, sched(7)). Where all cores compute, the training thread that wakes it would
// stand for a few milliseconds. Not for the writer: each of its many waits for the disk would cost it a turn,
// and commits would lag behind on busy cores. Changes no policy that the program has chosen, and ignores a
// system that refuses.
inline void work_beside_training() noexcept {
  if (sched_getscheduler(0) != SCHED_OTHER) return;
  const sched_param none{};
  static_cast<void>(sched_setscheduler(0, SCHED_BATCH, &none));
}

}}  // namespace holdfast::v0_2
