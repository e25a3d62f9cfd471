// Spreads writes over time: each waits until those before it would have been through at the limit. No credit
// is saved up while nothing is written.
//
// Threads: take() from several at once. Time comes from a Clock alone.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "holdfast/base/clock.h"
#include "holdfast/format/internal/workers.h"

namespace holdfast::inline v1::internal {

class Throttle {
 public:
  // `limit` in MB/s, 0: none. `hurry` may be nullptr; true lifts the limit. Both outlive this object.
  Throttle(double limit, Clock& clock, const std::atomic<bool>* hurry)
      : limit_(limit), clock_(clock), hurry_(hurry) {}

  // What one write should take: 50 ms at the limit, 256 KiB to `most`, a multiple of 4096.
  std::uint64_t block(std::uint64_t most) const;
  // Waits for the turn of that many bytes. Returns early when stopped.
  void take(std::uint64_t bytes, const Stopped& stopped);

 private:
  bool lifted() const;

  const double limit_;
  Clock& clock_;
  const std::atomic<bool>* const hurry_;
  std::mutex mutex_;
  SteadyTime free_{};  // when everything taken so far is through
};

}  // namespace holdfast::inline v1::internal
