// The machine of one rank hibernates: its sleep hides no end, and is none.
#include "noticed.h"
#include "together.h"

namespace holdfast::test { namespace {

// The end of one machine is planned for, though another only sleeps.
TEST_F(Together, AnEndBeatsAnotherRanksSleep) {
  CapturedLog log;
  live(3, [](Member& one) {
    one.train_to(5);
    if (one.rank == 1) one.announcer.deadline(one.clock.now() + 20s, true);
    if (one.rank == 2) one.announcer.deadline(one.clock.now() + 60s);
    one.train_to(60);
    one.finish();
  });
  expect_all_ended(0);
  ASSERT_GE(member(0).saved.size(), 2U);
  EXPECT_EQ(member(0).saved[1], 32) << "as without the sleep";
  EXPECT_THAT(log.text(), HasSubstr("pausing at step 32"));
}

// No save could end before the sleep; the machine wakes up and goes on with it.
TEST_F(Together, ASleepOfAnotherRankIsNoEndOfAStop) {
  CapturedLog log;
  volume->faults.set_hook([&](const Operation& operation) {
    if (of_checkpoint(operation, Op::sync_file)) volume->clock.advance(10s);
  });
  live(2, [](Member& one) {
    if (one.rank == 0) one.checkpointer->request_save();
    one.train_to(10);
    if (one.rank == 1) one.announcer.deadline(one.clock.now() + 12s, true);
    if (one.rank == 1) one.checkpointer->request_stop("enough");
    one.train_to(30);
    one.finish();
  });
  expect_all_ended(75);
  EXPECT_LE(member(0).source.step(), 13);
  EXPECT_EQ(member(0).checkpointer->last_durable().step, member(0).source.step());
}

}}  // namespace holdfast::test
