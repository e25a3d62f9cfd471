#include "holdfast/io/internal/stall_watch.h"

#include <utility>

#include "holdfast/base/log.h"
#include "holdfast/base/text.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// Often enough to show that the program lives, rarely enough to read.
constexpr Duration kAgain = std::chrono::seconds(10);

}  // namespace

// A thread, because the thread that waits for a dead volume cannot print anything.
StallWatch::StallWatch(Duration patience) : patience_(patience) {
  doing("the volume");
  thread_ = std::thread([this] { watch(); });
}

StallWatch::~StallWatch() {
  {
    const MutexLock lock(mutex_);
    ended_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void StallWatch::doing(std::string what) {
  {
    const MutexLock lock(mutex_);
    what_ = std::move(what);
    since_ = Clock::real().now();
    say_at_ = since_ + patience_;
  }
  wake_.notify_one();  // the watch may sleep beyond this operation's limit
}

void StallWatch::watch() {
  const MutexLock lock(mutex_);
  while (!ended_) {
    const SteadyTime now = Clock::real().now();
    if (now < say_at_) {
      // A copy, because doing() may change say_at_ while this thread sleeps.
      wake_.wait_until(mutex_, SteadyTime(say_at_));
      continue;
    }
    log_warning("waiting for {} ({} so far)", what_, format_duration(now - since_));
    say_at_ = now + kAgain;
  }
}

}}}  // namespace holdfast::v0_2::internal
