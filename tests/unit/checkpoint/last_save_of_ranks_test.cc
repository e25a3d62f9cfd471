// The last save of several ranks: whether there is time for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "noticed.h"
#include "together.h"

namespace holdfast::test { namespace {

class LastSaveOfRanks : public Together, public testing::WithParamInterface<int> {
 protected:
  LastSaveOfRanks() { seers = GetParam(); }
  void commits_take(Duration time) {
    volume->faults.set_hook([&clock = volume->clock, time](const Operation& operation) {
      if (of_checkpoint(operation, Op::sync_file)) clock.advance(time);
    });
  }
  CapturedLog log;
};
INSTANTIATE_TEST_SUITE_P(See, LastSaveOfRanks, testing::Values(1, 2));

TEST_P(LastSaveOfRanks, IsLeftOutWithoutTimeForIt) {
  commits_take(30s);
  live(2, [](Member& one) {
    if (one.rank == 0) one.checkpointer->request_save();
    one.train_to(10);
    if (one.rank == 1) one.announcer.stop(one.clock.now() + 25s);
    one.train_to(30);
    one.finish();
  });
  expect_all_ended(75);
  EXPECT_LT(member(0).checkpointer->last_durable().step, 10);
  EXPECT_THAT(member(1).checkpointer->stop_reason(), HasSubstr("no time was left"));
}

// Nobody told the run to stop, so it may wait, although the end may come first.
TEST_P(LastSaveOfRanks, IsMadeWhereTheLoopEndsByItselfShortlyBeforeAnEnd) {
  commits_take(30s);
  live(2, [](Member& one) {
    if (one.rank == 0) one.checkpointer->request_save();
    one.train_to(10);
    if (one.rank == 1) one.announcer.deadline(one.clock.now() + 12s);
    one.train_to(12);
    one.finish();
  });
  expect_all_ended(0);
  EXPECT_EQ(member(0).checkpointer->last_durable().step, 12);
}

// The ranks voted on it a step before the notice came.
TEST_P(LastSaveOfRanks, IsNotBegunWhereANoticeForbidsWhatWasAgreed) {
  options.every = SaveEvery::steps(10);
  commits_take(30s);
  live(2, [](Member& one) {
    one.train_to(19);
    if (one.rank == 0) one.announcer.deadline(one.clock.now() + 25s);
    one.train_to(20);
    if (one.rank == 0) one.announcer.stop(one.clock.now() + 20s);
    one.train_to(30);
    one.finish();
  });
  expect_all_ended(75);
  EXPECT_EQ(member(0).checkpointer->last_durable().step, 10);
}

// A state of which the ranks hold parts is brought together once, after all have agreed on that save.
TEST_P(LastSaveOfRanks, BringsASpreadStateTogetherAlthoughAnEarlyStepWasSlow) {
  spread = true;
  commits_take(5s);
  live(2, [](Member& one) {
    one.train_to(2);
    one.step_time = 40s;
    one.train_to(3);
    one.step_time = 2s;
    if (one.rank == 0) one.checkpointer->request_save();
    one.train_to(10);
    const std::int64_t before = one.source.brought_together;
    if (one.rank == 1) one.announcer.stop(one.clock.now() + 25s);
    one.train_to(30);
    one.finish();
    EXPECT_EQ(one.source.brought_together, before + 1) << one.rank;
  });
  expect_all_ended(75);
  EXPECT_EQ(member(0).checkpointer->last_durable().step, member(0).source.step());
}

}}  // namespace holdfast::test
