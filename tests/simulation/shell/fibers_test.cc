#include "fibers.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <future>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

#include "holdfast/base/clock.h"

namespace holdfast::simulation { namespace {

using namespace std::chrono_literals;
using testing::Test;

std::string run(const FiberOptions& options, const std::function<void()>& main,
                std::uint64_t* hash = nullptr) {
  Fibers fibers(options);
  std::string broken = fibers.run(main);
  if (hash != nullptr) *hash = fibers.hash();
  return broken;
}

// Two threads add to a number that a lock guards only in part.
int torn_sum(std::uint64_t seed, unsigned one_in, bool by_priority = false, std::uint64_t* hash = nullptr) {
  int sum = 0;
  EXPECT_EQ(run(
                {.seed = seed, .one_in = one_in, .by_priority = by_priority},
                [&] {
                  std::mutex mutex;
                  const auto add = [&] {
                    for (int i = 0; i < 10; ++i) {
                      int read = 0;
                      {
                        const std::lock_guard lock(mutex);
                        read = sum;
                      }
                      const std::lock_guard lock(mutex);
                      sum = read + 1;
                    }
                  };
                  std::thread one(add), other(add);
                  one.join();
                  other.join();
                },
                hash),
            "");
  return sum;
}

TEST(FibersTest, FindAnInterleavingThatLosesAnUpdate) {
  std::set<int> random, by_priority;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    EXPECT_EQ(torn_sum(seed, 0), 20);
    random.insert(torn_sum(seed, 5));
    by_priority.insert(torn_sum(seed, 20, true));
  }
  EXPECT_GT(random.size(), 3U);
  EXPECT_LT(*random.begin(), 20);
  EXPECT_LT(*by_priority.begin(), 20);
}

TEST(FibersTest, EqualSeedsRunEqually) {
  std::set<std::uint64_t> hashes;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    std::uint64_t first = 0, second = 0;
    torn_sum(seed, 5, false, &first);
    torn_sum(seed, 5, false, &second);
    EXPECT_EQ(first, second);
    hashes.insert(first);
  }
  EXPECT_EQ(hashes.size(), 20U);
}

TEST(FibersTest, TimePassesAtOnceWhenAllWait) {
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(run({},
                [] {
                  const SteadyTime start = Clock::real().now();
                  std::thread other([] { std::this_thread::sleep_for(1h); });
                  std::mutex mutex;
                  std::condition_variable never;
                  std::unique_lock lock(mutex);
                  EXPECT_FALSE(never.wait_for(lock, 20min, [] { return false; }));
                  const Duration waited = Clock::real().now() - start;
                  EXPECT_GE(waited, 20min);
                  EXPECT_LT(waited, 21min);
                  other.join();
                  EXPECT_GE(Clock::real().now() - start, 1h);
                }),
            "");
  EXPECT_LT(std::chrono::steady_clock::now() - began, 10s);
}

TEST(FibersTest, NameADeadLock) {
  const std::string broken = run({.seed = 3, .one_in = 2, .backtraces = true}, [] {
    static std::mutex one, other;
    std::thread thread([] {
      for (int i = 0; i < 100; ++i) {
        const std::lock_guard first(one);
        const std::lock_guard second(other);
      }
    });
    for (int i = 0; i < 100; ++i) {
      const std::lock_guard second(other);
      const std::lock_guard first(one);
    }
    thread.join();
  });
  EXPECT_NE(broken.find("a dead-lock"), std::string::npos) << broken;
  EXPECT_NE(broken.find("waits for a lock"), std::string::npos) << broken;
}

TEST(FibersTest, NameAWakeThatNobodySends) {
  const std::string broken = run({}, [] {
    std::mutex mutex;
    std::condition_variable never;
    std::unique_lock lock(mutex);
    never.wait(lock, [] { return false; });
  });
  EXPECT_NE(broken.find("waits for a condition"), std::string::npos) << broken;
}

TEST(FibersTest, FuturesSharedLocksExceptionsAndThreadLocals) {
  static thread_local int mine = 7;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    EXPECT_EQ(run({.seed = seed, .one_in = 2, .stalls_one_in = 10, .spurious = true},
                  [] {
                    std::shared_mutex shared;
                    const auto work = [&](int number) {
                      EXPECT_EQ(mine, 7);
                      mine = number;
                      try {
                        const std::shared_lock lock(shared);
                        throw number;
                      } catch (int caught) {
                        const std::lock_guard lock(shared);
                        EXPECT_EQ(caught, number);
                        EXPECT_EQ(std::uncaught_exceptions(), 0);
                      }
                      EXPECT_EQ(mine, number);
                      return number;
                    };
                    auto one = std::async(std::launch::async, work, 1);
                    auto other = std::async(std::launch::async, work, 2);
                    EXPECT_EQ(one.wait_for(1h), std::future_status::ready);
                    EXPECT_EQ(one.get() + other.get(), 3);
                  }),
              "");
  }
}

TEST(FibersTest, AKilledProcessDoesNothingMoreAndLeavesNoLock) {
  int done = 0;
  std::mutex mutex;
  EXPECT_EQ(run({.seed = 4, .one_in = 2},
                [&] {
                  Fibers& fibers = *Fibers::current();
                  fibers.start(1, [&] {
                    for (;; std::this_thread::sleep_for(1s)) {
                      const std::lock_guard lock(mutex);
                      std::this_thread::sleep_for(500ms);
                      ++done;
                    }
                  });
                  fibers.sleep(10s);
                  fibers.kill(1);
                  fibers.sleep(1s);
                  const int before = done;
                  const std::lock_guard lock(mutex);
                  fibers.sleep(1min);
                  EXPECT_EQ(done, before);
                  EXPECT_GT(done, 3);
                  EXPECT_EQ(fibers.count(1), 0);
                }),
            "");
}

}}  // namespace holdfast::simulation
