#include "holdfast/distributed/internal/nccl_watch.h"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"

namespace holdfast { inline namespace v0_2 {

NcclWatch::NcclWatch(NcclWatchQuestions questions, const NcclWatchOptions& options)
    : ask_(std::move(questions)), options_(options), thread_([this] { run(); }) {}

NcclWatch::~NcclWatch() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void NcclWatch::unwinding(const std::string& failure) {
  {
    const std::lock_guard lock(mutex_);
    if (over_ || unwinding_since_) return;
    unwinding_since_ = Clock::real().now();
    // The first failure is the cause; the others follow from it.
    if (failure_.empty()) failure_ = failure;
  }
  changed_.notify_all();
}

std::string NcclWatch::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

// Returns what the watch itself has found; empty: the program unwinds, or the watch is over.
std::string NcclWatch::await_failure() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, options_.look_every, [this] { return over_ || !failure_.empty(); })) {
    lock.unlock();
    std::string found;
    try {
      found = ask_.fault();
    } catch (const std::exception& error) {
      found = error.what();
    }
    if (!stopped_at_ && ask_.told_to_stop()) stopped_at_ = Clock::real().now();
    lock.lock();
    if (found.empty() || !failure_.empty() || over_) continue;
    failure_ = found;
    return found;
  }
  return {};
}

// Says whether this rank must end now.
bool NcclWatch::must_end(SteadyTime now) {
  if (!stopped_at_ && ask_.told_to_stop()) stopped_at_ = now;
  if (now - failed_at_ >= options_.patience) return true;
  if (stopped_at_ && now - *stopped_at_ >= options_.grace) return true;
  // Asked anew each time: a thread that is busy elsewhere may yet begin a collective.
  if (!ask_.waits()) {
    waiting_since_.reset();
    return false;
  }
  if (!waiting_since_) waiting_since_ = now;
  if (ask_.saving()) return false;
  const std::unique_lock lock(mutex_);
  return unwinding_since_ ? now - std::max(*unwinding_since_, *waiting_since_) >= options_.to_unwind
                          : now - *waiting_since_ >= options_.to_return;
}

void NcclWatch::run() {
  const std::string found = await_failure();
  failed_at_ = Clock::real().now();
  std::string who;
  if (!found.empty()) {
    // At once: the other ranks ask at the same time, and the store may end with rank 0.
    who = ask_.who();
    // The thread of the training waits in a kernel that cannot be interrupted, so ending the process is all
    // that is left.
    log_warning("{} ({}): this rank ends with exit code 75{}", who, found,
                ask_.saving() ? ", at the latest in " + format_duration(options_.patience) +
                                    ": a save is in flight, and may become durable"
                              : "");
  }
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, options_.look_every, [this] { return over_; })) {
    lock.unlock();
    if (must_end(Clock::real().now())) {
      if (who.empty()) who = ask_.who();
      // A process that was told to stop has no time for it, and its end has a reason.
      if (!stopped_at_) ask_.keep_evidence(who + ": " + failure());
      ask_.end(who, failure());
      return;
    }
    lock.lock();
  }
}

// Not exit(): destructors and atexit handlers of CUDA would wait for kernels that never end.
void end_interrupted() noexcept { ::_exit(static_cast<int>(ExitCode::interrupted)); }

}}  // namespace holdfast::v0_2
