#include "holdfast/io/internal/stall_watch.h"

#include <utility>

#include "holdfast/base/log.h"
#include "holdfast/base/text.h"

namespace holdfast::inline v1::internal {
namespace {

constexpr Duration kAgain = std::chrono::seconds(10);

}  // namespace

StallWatch::StallWatch(Duration patience) : patience_(patience) {
  doing("the volume");
  thread_ = std::thread([this] { watch(); });
}

StallWatch::~StallWatch() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void StallWatch::doing(std::string what) {
  {
    const std::lock_guard lock(mutex_);
    what_ = std::move(what);
    since_ = Clock::real().now();
    say_at_ = since_ + patience_;
  }
  wake_.notify_one();  // it may sleep until long after this operation's time
}

void StallWatch::watch() {
  std::unique_lock lock(mutex_);
  while (!ended_) {
    const SteadyTime now = Clock::real().now();
    if (now < say_at_) {
      wake_.wait_until(lock, SteadyTime(say_at_));
      continue;
    }
    log_warning("waiting for {} ({} so far)", what_, format_duration(now - since_));
    say_at_ = now + kAgain;
  }
}

}  // namespace holdfast::inline v1::internal
