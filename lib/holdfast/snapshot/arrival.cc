#include "holdfast/snapshot/arrival.h"

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 {

void Arrival::wait() const {
  const MutexLock lock(mutex_);
  settled_.wait(mutex_, [this]() HOLDFAST_REQUIRES(mutex_) { return done_; });
  if (failure_) throw Error(*failure_);
}

bool Arrival::arrived() const {
  const MutexLock lock(mutex_);
  return done_;
}

void Arrival::settle() noexcept {
  {
    const MutexLock lock(mutex_);
    done_ = true;
  }
  // Outside the lock, so that a waiter that wakes up does not block on it at once.
  settled_.notify_all();
}

void Arrival::fail(std::string_view reason) noexcept {
  {
    const MutexLock lock(mutex_);
    // Without memory for the reason the waiter still learns that the copy failed.
    failure_ = text_or_out_of_memory([&] { return std::string(reason); });
    done_ = true;
  }
  settled_.notify_all();
}

}}  // namespace holdfast::v0_2
