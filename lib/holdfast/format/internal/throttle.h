// Limits the speed of writes: each waits until the earlier ones would have ended at the limit. An idle time
// gives no credit.
//
// Errors: none. Threads: take() on several at once. All time comes from the Clock.
#pragma once

#include <atomic>
#include <cstdint>

#include "holdfast/base/clock.h"
#include "holdfast/base/mutex.h"
#include "holdfast/format/internal/workers.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class Throttle {
 public:
  // `limit` in MB/s; 0: none. `limit_lifted` may be nullptr; true lifts the limit. Clock and `limit_lifted`
  // outlive this object.
  Throttle(double limit, Clock& clock, const std::atomic<bool>* limit_lifted)
      : limit_(limit), clock_(clock), limit_lifted_(limit_lifted) {}

  // Best size of one write: 50 ms at the limit, between 256 KiB and `most`, a multiple of 4096.
  std::uint64_t block(std::uint64_t most) const;
  // Waits until `bytes` may be written. Returns early if stopped.
  void take(std::uint64_t bytes, const Stopped& stopped);

 private:
  bool lifted() const;

  const double limit_;
  Clock& clock_;
  const std::atomic<bool>* const limit_lifted_;
  Mutex mutex_;
  SteadyTime free_ HOLDFAST_GUARDED_BY(mutex_){};  // when all writes so far will have ended at the limit
};

}}}  // namespace holdfast::v0_2::internal
