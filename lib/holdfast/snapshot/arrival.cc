#include "holdfast/snapshot/arrival.h"

#include "holdfast/base/error.h"

namespace holdfast::inline v1 {

void Arrival::wait() const {
  std::unique_lock lock(mutex_);
  settled_.wait(lock, [this] { return done_; });
  if (failure_) throw Error(*failure_);
}

bool Arrival::arrived() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

void Arrival::settle() noexcept {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  settled_.notify_all();
}

void Arrival::fail(std::string_view reason) noexcept {
  {
    const std::lock_guard lock(mutex_);
    failure_ = text_or_out_of_memory([&] { return std::string(reason); });
    done_ = true;
  }
  settled_.notify_all();
}

}  // namespace holdfast::inline v1
