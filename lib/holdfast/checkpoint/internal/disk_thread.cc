#include "holdfast/checkpoint/internal/disk_thread.h"

#include <algorithm>
#include <utility>

#include "holdfast/base/mutex.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

struct DiskThread::Shared {
  Mutex mutex;
  CondVar wake;
  CondVar left;
  bool stopping HOLDFAST_GUARDED_BY(mutex) = false;
  bool in_disk HOLDFAST_GUARDED_BY(mutex) = false;
  bool over HOLDFAST_GUARDED_BY(mutex) = false;
  bool left_behind HOLDFAST_GUARDED_BY(mutex) = false;
};

void DiskThread::Round::ask(const std::function<void()>& question) {
  // Under the lock, so that stop() waits for it.
  const MutexLock lock(shared_.mutex);
  if (!shared_.left_behind) question();
}

void DiskThread::Round::in_disk(const std::function<void()>& work) {
  const auto set = [this](bool inside) {
    const MutexLock lock(shared_.mutex);
    shared_.in_disk = inside;
  };
  set(true);
  try {
    work();
  } catch (...) {
    set(false);
    throw;
  }
  set(false);
}

void DiskThread::start(Duration first, Work work) {
  // Shared, because a thread that is left behind uses it after the owner has gone.
  shared_ = std::make_shared<Shared>();
  thread_ = std::thread([shared = shared_, first, work = std::move(work)] { run(*shared, first, work); });
}

void DiskThread::run(Shared& shared, Duration first, const Work& work) noexcept {
  Duration wait = first;
  for (bool last = false; !last;) {
    {
      const MutexLock lock(shared.mutex);
      last = shared.wake.wait_for(shared.mutex, wait,
                                  [&]() HOLDFAST_REQUIRES(shared.mutex) { return shared.stopping; });
    }
    Round round(shared, last);
    wait = work(round);
  }
  const MutexLock lock(shared.mutex);
  shared.over = true;
  shared.left.notify_all();
}

void DiskThread::stop(Duration patience) noexcept {
  if (!thread_.joinable()) return;
  // Even without patience a read or write that is just ending gets a moment.
  const Duration slice = std::max<Duration>(patience, std::chrono::milliseconds(10));
  bool hangs = false;
  {
    const MutexLock lock(shared_->mutex);
    shared_->stopping = true;
    shared_->wake.notify_all();
    while (!shared_->over && !hangs) {
      const bool was_in_disk = shared_->in_disk;
      const bool over = shared_->left.wait_for(
          shared_->mutex, slice, [this]() HOLDFAST_REQUIRES(shared_->mutex) { return shared_->over; });
      // In the disk at both ends of a slice: a thread that only waits for a processor is waited for.
      hangs = !over && was_in_disk && shared_->in_disk;
    }
    // Set before the owner goes on and frees what it has: Round::ask() calls no question from here on.
    shared_->left_behind = hangs;
  }
  // A thread that hangs in the disk could not be joined.
  hangs ? thread_.detach() : thread_.join();
}

}}}  // namespace holdfast::v0_2::internal
