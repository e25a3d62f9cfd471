#include "holdfast/checkpoint/internal/disk_thread.h"

#include <algorithm>
#include <utility>

#include "holdfast/base/mutex.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

struct DiskThread::Shared {
  // `left_behind` is final: the owner sets it when the thread hangs in the disk.
  enum class State { running, in_disk, over, left_behind };

  void enter(State next) HOLDFAST_REQUIRES(mutex) {
    if (state != State::left_behind) state = next;
  }

  Mutex mutex;
  CondVar wake;
  CondVar left;
  bool stopping HOLDFAST_GUARDED_BY(mutex) = false;
  State state HOLDFAST_GUARDED_BY(mutex) = State::running;
};

void DiskThread::Round::ask(const std::function<void()>& question) {
  // Under the lock, so that stop() waits for it.
  const MutexLock lock(shared_.mutex);
  if (shared_.state != Shared::State::left_behind) question();
}

void DiskThread::Round::in_disk(const std::function<void()>& work) {
  const auto enter = [this](Shared::State next) {
    const MutexLock lock(shared_.mutex);
    shared_.enter(next);
  };
  enter(Shared::State::in_disk);
  try {
    work();
  } catch (...) {
    enter(Shared::State::running);
    throw;
  }
  enter(Shared::State::running);
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
  shared.enter(Shared::State::over);
  shared.left.notify_all();
}

void DiskThread::stop(Duration patience) noexcept {
  using State = Shared::State;
  if (!thread_.joinable()) return;
  // Even without patience a read or write that is just ending gets a moment.
  const Duration slice = std::max<Duration>(patience, std::chrono::milliseconds(10));
  bool hangs = false;
  {
    const MutexLock lock(shared_->mutex);
    shared_->stopping = true;
    shared_->wake.notify_all();
    while (shared_->state != State::over && !hangs) {
      const State before = shared_->state;
      shared_->left.wait_for(shared_->mutex, slice, [this]() HOLDFAST_REQUIRES(shared_->mutex) {
        return shared_->state == State::over;
      });
      // In the disk at both ends of a slice: a thread that only waits for a processor is waited for.
      hangs = before == State::in_disk && shared_->state == State::in_disk;
    }
    // Set before the owner goes on and frees what it has: Round::ask() calls no question from here on.
    if (hangs) shared_->enter(State::left_behind);
  }
  // A thread that hangs in the disk could not be joined.
  hangs ? thread_.detach() : thread_.join();
}

}}}  // namespace holdfast::v0_2::internal
