#include "holdfast/base/process/own_stacks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "holdfast/base/thread/block_signals.h"

namespace holdfast { namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

#if defined(__SANITIZE_THREAD__)
constexpr bool kLateSignals = true;
#else
constexpr bool kLateSignals = false;
#endif

class OwnStacks : public testing::Test {
 protected:
  void SetUp() override {
    if (kLateSignals) GTEST_SKIP() << "the thread sanitizer delays signals, and has a thread of its own";
  }
};

// Waits for a mutex that is not given.
struct Waiter {
  explicit Waiter(std::mutex& mutex)
      : thread([this, &mutex] {
          id = static_cast<pid_t>(syscall(SYS_gettid));
          const std::lock_guard lock(mutex);
        }) {
    while (id == 0) std::this_thread::yield();
  }
  ~Waiter() { thread.join(); }
  std::string name() const { return "thread " + std::to_string(id) + "\n"; }

  std::atomic<pid_t> id{0};
  std::thread thread;
};

TEST_F(OwnStacks, OfADeadlockedThread) {
  std::mutex mutex;
  mutex.lock();
  const Waiter waiter(mutex);
  std::string text;
  // It may not have come to the mutex yet.
  do {
    text = own_stacks(Clock::real().now() + 10min);
  } while (text.find("lock") == std::string::npos);
  EXPECT_THAT(text, AllOf(ContainsRegex(waiter.name() + "  #0 [^\n]*libc.so.6\\+0x"),
                          ContainsRegex("  #[0-9]+ base_test\\+0x")));
  EXPECT_THAT(text, Not(HasSubstr("thread " + std::to_string(gettid()) + "\n"))) << "the caller's";
  mutex.unlock();
}

TEST_F(OwnStacks, WithoutThreadsThatBlockSignals) {
  std::mutex mutex;
  mutex.lock();
  const auto waiter = [&] {
    const BlockSignals block;
    return std::make_unique<Waiter>(mutex);
  }();
  EXPECT_THAT(own_stacks(Clock::real().now() + 10min),
              AllOf(Not(HasSubstr(waiter->name())), HasSubstr("block signals: 1 threads")));
  mutex.unlock();
}

}}  // namespace holdfast
