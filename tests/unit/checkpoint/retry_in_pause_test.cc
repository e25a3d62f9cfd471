// In a pause before an announced end the last save is tried again two seconds after it failed, not at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "noticed.h"
#include "together.h"

namespace holdfast::test { namespace {

class RetryInPause : public Together {
 protected:
  RetryInPause() {
    seers = 2;
    options.notices.on_notice = OnNotice::wait;
  }
  // Rank 1 cannot copy its share. In each look of rank 0's pause the outcome is known.
  void pause_with_failures() {
    live(2, [&](Member& one) {
      one.train_to(5);
      if (one.rank == 1) {
        one.source.on_copy = [&] {
          tries.push_back(one.clock.now());
          throw Error("planted");
        };
      }
      if (one.rank == 0) {
        one.source.on_copy = [&] { ++begun; };
        for (int i = 0; i < 2000; ++i) {
          one.clock.plan(i * 100ms, [&, training = std::this_thread::get_id()] {
            if (std::this_thread::get_id() != training) return;  // the writer moves the clock as well
            EXPECT_TRUE(soon([&] {
              const RunFigures figures = one.checkpointer->figures();
              return figures.failed + figures.durable >= begun;
            }));
          });
        }
        one.announcer.deadline(one.clock.now() + 60s);
      }
      one.train_to(8);
      one.finish();
    });
  }
  CapturedLog log;
  std::atomic<std::int64_t> begun{0};  // saves of rank 0
  std::vector<SteadyTime> tries;
};

TEST_F(RetryInPause, SeveralRanksWaitTwoSeconds) {
  pause_with_failures();
  ASSERT_GE(tries.size(), 2U);
  EXPECT_GE(tries[1] - tries[0], 1900ms) << "the votes in between advance the clock of rank 1";
}

}}  // namespace holdfast::test
