// A machine that hibernates wakes up, so no wait of its run ends because of it.
#include <atomic>
#include <thread>

#include "asked_clock.h"

namespace holdfast::test { namespace {

using testing::Not;

// The write goes on when the machine is awake again.
TEST_F(AskedNoticed, ASleepDoesNotEndTheWaitForTheLastSave) {
  commit = {};
  start_measured();
  SlowDisk disk(volume);
  announcer.deadline(now() + 30s, true);
  run->checkpointer.request_stop("enough");
  EXPECT_TRUE(run->step().stop);
  disk.await(1);
  std::atomic<bool> over{false};
  std::thread later([&] {
    volume.clock.advance(10min);
    EXPECT_TRUE(clock.waits(training, [&] { return over.load(); }));
    disk.finish(2);
  });
  EXPECT_EQ(run->checkpointer.finish(), 75);
  over = true;
  later.join();
  EXPECT_EQ(durable(), 11);
  EXPECT_THAT(log.text(), Not(HasSubstr("did not end in time")));
}

// The image of the save before is free when the machine is awake again.
TEST_F(AskedNoticed, ASleepDoesNotEndTheWaitForAnImage) {
  commit = {};
  start_measured();
  SlowDisk disk(volume);
  run->step();
  run->checkpointer.save();
  disk.await(1);
  run->step();
  announcer.deadline(now() + 8s, true);
  const std::int64_t copies = run->source.copies;
  std::atomic<bool> over{false};
  std::thread later([&] {
    EXPECT_TRUE(clock.waits(training));
    volume.clock.advance(9s);
    EXPECT_TRUE(clock.waits(training, [&] { return over.load(); }));
    EXPECT_EQ(run->source.copies, copies) << "it took a second image";
    disk.finish(2);
  });
  const SaveHandle save = run->checkpointer.save();
  over = true;
  later.join();
  EXPECT_EQ(save.wait(), SaveStatus::durable);
}

}}  // namespace holdfast::test
