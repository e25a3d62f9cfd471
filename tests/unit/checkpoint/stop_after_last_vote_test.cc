// After the last vote rank 0 writes the last save, and the others wait for the outcome. A stop that any of them
// hears then counts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>

#include "noticed.h"
#include "together.h"

namespace holdfast::test { namespace {

class StopAfterLastVote : public Together {
 protected:
  CapturedLog log;
};

TEST_F(StopAfterLastVote, AStopThatOneRankHearsAfterTheLastVoteCounts) {
  for (const int hears : {0, 1, 2}) {
    SCOPED_TRACE(hears);
    start_over();
    std::atomic<bool> last{false};
    volume->faults.set_hook([&](const Operation& operation) {
      if (!of_checkpoint(operation, Op::create) || !last.exchange(false)) return;
      volume->faults.fail(Op::sync_file, 1, EIO, {.for_ever = true});
      member(hears).announcer.stop(member(hears).clock.now() + 1h);
    });
    live(3, [&](Member& one) {
      one.train_to(3);
      if (one.rank == 0) one.checkpointer->request_save();
      one.train_to(10);
      if (one.rank == 0) last = true;
      one.finish();
    });
    expect_all_ended(75);
    EXPECT_EQ(member(0).checkpointer->last_durable().step, 5);
    EXPECT_THAT(member(2).checkpointer->stop_reason(), HasSubstr("failed"));
  }
}

// Without any stop it stays a failure.
TEST_F(StopAfterLastVote, ALastSaveThatFailsIsNoInterruption) {
  live(2, [&](Member& one) {
    one.train_to(3);
    if (one.rank == 0) one.checkpointer->request_save();
    one.train_to(10);
    if (one.rank == 0) volume->faults.fail(Op::sync_file, 1, EIO, {.for_ever = true});
    if (one.rank == 1) one.announcer.deadline(one.clock.now() + 1h);
    one.finish();
  });
  expect_all_ended(74);
}

}}  // namespace holdfast::test
