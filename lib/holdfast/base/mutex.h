// std::mutex, std::unique_lock and std::condition_variable under names that clang's thread-safety analysis
// understands (thread_annotations.h). They behave and cost the same.
//
//   const MutexLock lock(mutex_);                      // held until the end of the block
//   MutexLock lock(mutex_); … lock.unlock(); … lock.lock();
//   wake_.wait(mutex_, [this]() HOLDFAST_REQUIRES(mutex_) { return stopping_; });
//
// Errors and threads: as those of the standard library.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include "holdfast/base/thread_annotations.h"

namespace holdfast { inline namespace v0_2 {

class HOLDFAST_CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() HOLDFAST_ACQUIRE() { mutex_.lock(); }
  void unlock() HOLDFAST_RELEASE() { mutex_.unlock(); }

 private:
  friend class MutexLock;
  friend class CondVar;
  std::mutex mutex_;
};

// std::shared_mutex: one holds it alone, or several share it.
class HOLDFAST_CAPABILITY("mutex") SharedMutex {
 public:
  SharedMutex() = default;
  SharedMutex(const SharedMutex&) = delete;
  SharedMutex& operator=(const SharedMutex&) = delete;

  void lock() HOLDFAST_ACQUIRE() { mutex_.lock(); }
  void unlock() HOLDFAST_RELEASE() { mutex_.unlock(); }
  void lock_shared() HOLDFAST_ACQUIRE_SHARED() { mutex_.lock_shared(); }
  void unlock_shared() HOLDFAST_RELEASE_SHARED() { mutex_.unlock_shared(); }

 private:
  std::shared_mutex mutex_;
};

// Holds the mutex shared while it lives.
class HOLDFAST_SCOPED_CAPABILITY SharedLock {
 public:
  explicit SharedLock(SharedMutex& mutex) HOLDFAST_ACQUIRE_SHARED(mutex) : mutex_(mutex) {
    mutex_.lock_shared();
  }
  ~SharedLock() HOLDFAST_RELEASE() { mutex_.unlock_shared(); }
  SharedLock(const SharedLock&) = delete;
  SharedLock& operator=(const SharedLock&) = delete;

 private:
  SharedMutex& mutex_;
};

// Holds the mutex while it lives, but between unlock() and lock().
class HOLDFAST_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) HOLDFAST_ACQUIRE(mutex) : lock_(mutex.mutex_) {}
  ~MutexLock() HOLDFAST_RELEASE() = default;
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void unlock() HOLDFAST_RELEASE() { lock_.unlock(); }
  void lock() HOLDFAST_ACQUIRE() { lock_.lock(); }

 private:
  std::unique_lock<std::mutex> lock_;
};

// Each wait releases the mutex, sleeps, and holds the mutex again when it returns or calls `ready`. A wait
// without `ready` may also return for no reason.
class CondVar {
 public:
  CondVar() = default;
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

  void notify_one() noexcept { condition_.notify_one(); }
  void notify_all() noexcept { condition_.notify_all(); }

  template <class Ready>
  void wait(Mutex& mutex, Ready ready) HOLDFAST_REQUIRES(mutex) {
    Held held(mutex);
    condition_.wait(held.lock, std::move(ready));
  }
  // False if the time is over and `ready` still returns false.
  template <class Rep, class Period, class Ready>
  bool wait_for(Mutex& mutex, std::chrono::duration<Rep, Period> limit, Ready ready)
      HOLDFAST_REQUIRES(mutex) {
    Held held(mutex);
    return condition_.wait_for(held.lock, limit, std::move(ready));
  }
  template <class TimePoint>
  void wait_until(Mutex& mutex, TimePoint end) HOLDFAST_REQUIRES(mutex) {
    Held held(mutex);
    condition_.wait_until(held.lock, end);
  }

 private:
  // The caller's lock in the form that the standard library needs. The caller still holds it afterwards.
  struct Held {
    explicit Held(Mutex& mutex) : lock(mutex.mutex_, std::adopt_lock) {}
    ~Held() { lock.release(); }
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
    std::unique_lock<std::mutex> lock;
  };
  std::condition_variable condition_;
};

}}  // namespace holdfast::v0_2
