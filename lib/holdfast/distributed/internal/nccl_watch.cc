#include "holdfast/distributed/internal/nccl_watch.h"

#include <unistd.h>

#include <exception>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"

namespace holdfast { inline namespace v0_2 {

NcclWatch::NcclWatch(std::function<std::string()> fault, std::function<void(const std::string&)> end,
                     const NcclWatchOptions& options)
    : fault_(std::move(fault)), end_(std::move(end)), options_(options), thread_([this] { run(); }) {}

NcclWatch::~NcclWatch() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void NcclWatch::tell(const std::string& failure) {
  {
    const std::lock_guard lock(mutex_);
    // The first failure is the cause; the others follow from it.
    if (over_ || !failure_.empty()) return;
    failure_ = failure;
  }
  changed_.notify_all();
  // The thread of the training waits in a kernel that cannot be interrupted, so ending the process is all
  // that is left.
  log_warning("{}: if this rank still waits for its GPU in {}, it ends with exit code 75", failure,
              format_duration(options_.patience));
}

std::string NcclWatch::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void NcclWatch::run() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, options_.look_every, [this] { return over_ || !failure_.empty(); })) {
    lock.unlock();
    std::string found;
    try {
      found = fault_();
    } catch (const std::exception& error) {
      found = error.what();
    }
    if (!found.empty()) tell(found);
    lock.lock();
  }
  // The training may notice by itself and end in order.
  if (changed_.wait_for(lock, options_.patience, [this] { return over_; })) return;
  const std::string failure = failure_;
  lock.unlock();
  end_(failure);
}

// Not exit(): destructors and atexit handlers of CUDA would wait for kernels that never end.
void end_interrupted() noexcept { ::_exit(static_cast<int>(ExitCode::interrupted)); }

}}  // namespace holdfast::v0_2
