#include "holdfast/interruption/notice_watch.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/base/thread/block_signals.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// Hooks and looks are rare; ten looks a second cost nothing that shows.
constexpr auto kLookEvery = std::chrono::milliseconds(100);

}  // namespace

void NoticeWatch::wake(const RiskCommand& command) noexcept {
  try {
    {
      const MutexLock lock(mutex_);
      // The owner is being destroyed; a new thread would outlive it.
      if (stopping_) return;
      if (!command.text.empty()) commands_.push_back(command);
      woken_ = true;
      // The thread starts with the first notice: most runs never get one.
      if (!thread_.joinable()) {
        const BlockSignals block;
        thread_ = std::thread([this] { run(); });
      }
    }
    changed_.notify_all();
  } catch (const std::exception& error) {
    log_warning("after a notice nobody checks whether the training reacts, and no command is run: {}",
                what_of(error));
  }
}

void NoticeWatch::stop() noexcept {
  std::thread thread;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    // Taken out here and joined without the lock, which the thread needs for its last round.
    thread.swap(thread_);
  }
  changed_.notify_all();
  if (thread.joinable()) thread.join();
}

void NoticeWatch::run() noexcept {
  const InRole role(thread_role_);
  RiskHook hook;
  MutexLock lock(mutex_);
  while (!stopping_) {
    // Cleared before the work, so that a notice that comes meanwhile starts another round.
    woken_ = false;
    const std::vector<RiskCommand> commands = std::exchange(commands_, {});
    // Commands and callbacks may take long or query this object, so the lock is released.
    lock.unlock();
    for (const RiskCommand& command : commands) hook.start(command);
    const bool running = hook.reap();
    const bool pending = callbacks_.pending();
    const bool waits = callbacks_.waits && callbacks_.waits();
    if (pending || waits) callbacks_.respond();
    if (pending) {
      look_for_silence();
    } else {
      noticed_ = 0;
    }
    lock.lock();
    const auto news = [this]() HOLDFAST_REQUIRES(mutex_) { return stopping_ || woken_; };
    if (running || pending || waits) {
      changed_.wait_for(mutex_, kLookEvery, news);
    } else {
      changed_.wait(mutex_, news);
    }
  }
  // A command that came with the end still runs: the machine may live longer than the training.
  for (const RiskCommand& command : std::exchange(commands_, {})) hook.start(command);
  // Reaps what has ended by now; the system adopts the rest.
  hook.reap();
}

void NoticeWatch::look_for_silence() noexcept {
  const std::int64_t now = clock_.now().time_since_epoch().count();
  if (noticed_ == 0) noticed_ = now;
  // Relaxed: this time is only compared, and a value that is a little old does no harm.
  const std::int64_t heard = heard_.load(std::memory_order_relaxed);
  // Once for each silence; the next call of the program arms it again.
  if (!expected_.load(std::memory_order_acquire) || said_about_ == heard) return;
  const Duration silent(now - std::max(heard, noticed_));
  if (silent < callbacks_.patience()) return;
  said_about_ = heard;
  const std::string text = text_or_out_of_memory([&] {
    return "deaf for " + format_duration(silent) + ": " + callbacks_.what() +
           ", and neither after_step() nor tick() has been called since; call tick() wherever the program "
           "is busy for long, and put evaluations into an EvaluationScope";
  });
  log_warning(text);
}

}}}  // namespace holdfast::v0_2::internal
