#include "holdfast/base/mutex.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

namespace holdfast::test { namespace {

using std::chrono::milliseconds;

class Account {
 public:
  void add() HOLDFAST_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    ++count_;
    changed_.notify_all();
  }
  void add_thrice() HOLDFAST_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    ++count_;
    lock.unlock();
    add();  // takes the lock itself
    lock.lock();
    ++count_;
  }
  bool wait_for(int count, milliseconds limit) HOLDFAST_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return changed_.wait_for(mutex_, limit, [&]() HOLDFAST_REQUIRES(mutex_) { return count_ >= count; });
  }
  int wait(int count) HOLDFAST_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    changed_.wait(mutex_, [&]() HOLDFAST_REQUIRES(mutex_) { return count_ >= count; });
    return count_;
  }
  void wait_until(std::chrono::steady_clock::time_point end) HOLDFAST_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    while (std::chrono::steady_clock::now() < end) changed_.wait_until(mutex_, end);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int count_ HOLDFAST_GUARDED_BY(mutex_) = 0;
};

TEST(Mutex, ExcludesOtherThreads) {
  Account account;
  constexpr int kAdds = 2000;
  const auto work = [&] {
    for (int i = 0; i < kAdds; ++i) account.add();
  };
  std::thread one(work);
  std::thread two(work);
  one.join();
  two.join();
  EXPECT_EQ(account.wait(0), 2 * kAdds);
}

TEST(Mutex, LockIsFreeBetweenUnlockAndLock) {
  Account account;
  account.add_thrice();
  EXPECT_EQ(account.wait(0), 3);
}

TEST(CondVar, WakesAWaitingThread) {
  Account account;
  int seen = 0;
  std::thread waiting([&] { seen = account.wait(1); });
  account.add();
  waiting.join();
  EXPECT_EQ(seen, 1);
}

TEST(CondVar, WaitForEndsWithTheTime) {
  Account account;
  EXPECT_FALSE(account.wait_for(1, milliseconds(5)));
  account.add();
  EXPECT_TRUE(account.wait_for(1, milliseconds(0)));
}

TEST(CondVar, WaitUntilEndsWithTheTime) {
  Account account;
  const auto end = std::chrono::steady_clock::now() + milliseconds(5);
  account.wait_until(end);
  EXPECT_GE(std::chrono::steady_clock::now(), end);
}

TEST(SharedMutex, IsSharedUntilOneTakesItAlone) {
  SharedMutex mutex;
  std::atomic<bool> alone{false};
  std::thread taker;
  {
    const SharedLock one(mutex);
    std::thread([&] { const SharedLock two(mutex); }).join();
    taker = std::thread([&] {
      const std::lock_guard lock(mutex);
      alone = true;
    });
    std::this_thread::sleep_for(milliseconds(5));
    EXPECT_FALSE(alone);
  }
  taker.join();
  EXPECT_TRUE(alone);
}

}}  // namespace holdfast::test
