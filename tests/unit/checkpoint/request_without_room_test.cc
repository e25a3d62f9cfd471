// A save that is asked for while only the last one has time before an announced end.
#include <mutex>

#include "noticed.h"
#include "together.h"

namespace holdfast::test { namespace {

TEST_F(Noticed, ARequestWithoutRoomIsToldAndServedLater) {
  commit = 20s;
  // The time of a commit counts as the step's only if it passes after the call: the disk waits for that.
  std::mutex stepping;
  volume.faults.set_hook([&](const Operation& operation) {
    if (!of_checkpoint(operation, Op::sync_file)) return;
    const std::lock_guard returned(stepping);
    volume.clock.advance(commit);
  });
  start_measured();
  announcer.deadline(now() + 96s);
  {
    const std::lock_guard hold(stepping);
    volume.clock.advance(2s);
    run->step();
  }
  EXPECT_TRUE(run->decision.saved) << "the insurance";
  run->decision.save.wait();
  run->checkpointer.request_save();
  EXPECT_FALSE(step().saved);
  EXPECT_FALSE(step().saved);
  const std::string text = log.text();
  EXPECT_THAT(text, HasSubstr("the save that was asked for at step 12 waits"));
  EXPECT_EQ(text.find("was asked for"), text.rfind("was asked for")) << "once";
  announcer.withdraw();
  EXPECT_TRUE(step().saved);
}

TEST_F(Together, ARequestWithoutRoomIsToldOfAnyRank) {
  CapturedLog log;
  volume->faults.set_hook([&](const Operation& operation) {
    if (of_checkpoint(operation, Op::sync_file)) volume->clock.advance(20s);
  });
  live(2, [](Member& one) {
    if (one.rank == 0) one.checkpointer->request_save();
    one.train_to(8);
    if (one.rank == 0) one.announcer.deadline(one.clock.now() + 118s);
    one.train_to(12);
    if (one.rank == 1) one.checkpointer->request_save();
    one.train_to(15);
    if (one.rank == 0) one.announcer.withdraw();
    one.train_to(20);
    one.finish();
  });
  expect_all_ended(0);
  const std::string text = log.text();
  EXPECT_THAT(text, HasSubstr("the save that was asked for at step 1"));
  EXPECT_EQ(text.find("was asked for"), text.rfind("was asked for")) << "once";
  ASSERT_FALSE(member(0).saved.empty());
  EXPECT_GT(member(0).saved.back(), 15) << "served after the withdrawal";
}

}}  // namespace holdfast::test
