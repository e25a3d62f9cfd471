// A thread for the disk: it works in rounds, and a disk that hangs holds up nobody.
#include "holdfast/checkpoint/internal/disk_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <thread>

#include "support/gate.h"
#include "support/soon.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using internal::DiskThread;

TEST(DiskThreads, RepeatRoundsAndEndWithOneThatIsTheLast) {
  std::atomic<int> rounds{0};
  std::atomic<int> last{0};
  DiskThread thread;
  thread.start(1ms, [&](DiskThread::Round& round) -> Duration {
    ++rounds;
    if (round.last()) ++last;
    return 1ms;
  });
  ASSERT_TRUE(soon([&] { return rounds > 3; }));
  EXPECT_EQ(last, 0);
  thread.stop(DiskThread::kPatience);
  EXPECT_EQ(last, 1);
  const int told = rounds;
  std::this_thread::sleep_for(5ms);
  EXPECT_EQ(rounds, told) << "no round after the last one";
}

TEST(DiskThreads, WaitAsLongAsARoundSays) {
  std::atomic<int> rounds{0};
  DiskThread thread;
  thread.start(1ms, [&](DiskThread::Round&) -> Duration {
    ++rounds;
    return 1h;
  });
  ASSERT_TRUE(soon([&] { return rounds == 1; }));
  std::this_thread::sleep_for(10ms);
  EXPECT_EQ(rounds, 1);
  thread.stop(DiskThread::kPatience);
  EXPECT_EQ(rounds, 2) << "stop() does not wait for the next time";
}

TEST(DiskThreads, LeaveADiskThatHangsBehindAndAskTheOwnerNothingMore) {
  struct Seen {
    Gate gate;
    std::atomic<bool> asked{false};
    std::atomic<bool> over{false};
  };
  // What a thread uses must outlive it.
  const auto seen = std::make_shared<Seen>();
  {
    DiskThread thread;
    thread.start(1ms, [seen](DiskThread::Round& round) -> Duration {
      round.in_disk([&] { seen->gate.pass(); });
      round.ask([&] { seen->asked = true; });
      seen->over = true;
      return 1h;
    });
    seen->gate.await_arrival();
    thread.stop(1ms);
    EXPECT_FALSE(seen->over) << "it hangs, and stop() has returned";
  }
  seen->gate.open();
  ASSERT_TRUE(soon([&] { return seen->over.load(); }));
  EXPECT_FALSE(seen->asked);
}

TEST(DiskThreads, ThatOnlyWaitForAProcessorAreWaitedFor) {
  std::atomic<bool> began{false};
  std::atomic<bool> over{false};
  DiskThread thread;
  thread.start(1ms, [&](DiskThread::Round& round) -> Duration {
    // Outside the disk again, also after an error of it.
    try {
      round.in_disk([] { throw std::runtime_error("the disk is gone"); });
      ADD_FAILURE() << "the error is lost";
    } catch (const std::runtime_error&) {
      began = true;
    }
    std::this_thread::sleep_for(100ms);
    over = true;
    return 1h;
  });
  ASSERT_TRUE(soon([&] { return began.load(); }));
  thread.stop(1ms);
  EXPECT_TRUE(over);
}

TEST(DiskThreads, StopWaitsForAQuestion) {
  std::atomic<bool> asking{false};
  std::atomic<bool> answered{false};
  DiskThread thread;
  thread.start(1ms, [&](DiskThread::Round& round) -> Duration {
    round.ask([&] {
      asking = true;
      std::this_thread::sleep_for(50ms);
      answered = true;
    });
    return 1h;
  });
  ASSERT_TRUE(soon([&] { return asking.load(); }));
  thread.stop(1ms);
  EXPECT_TRUE(answered);
}

TEST(DiskThreads, ThatNeverStartedStop) {
  DiskThread thread;
  thread.stop(1ms);
  thread.stop(1ms);
}

}}  // namespace holdfast::test
