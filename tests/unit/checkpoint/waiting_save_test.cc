// A save that waits for its turn gives way to a newer one, and only if that one comes.
#include <thread>

#include "asked_clock.h"

namespace holdfast::test { namespace {

class WaitingSave : public AskedNoticed {
 protected:
  SaveHandle step_and_save() {
    run->step();
    return run->checkpointer.save();
  }
};

// The deadline becomes known while the training waits for an image.
TEST_F(WaitingSave, IsNotGivenUpForALastOneThatComesTooLate) {
  options.writing.second_image = true;
  commit = 20s;
  start_measured();
  SlowDisk disk(volume);
  step_and_save();
  disk.await(1);
  const SaveHandle waiting = step_and_save();
  run->checkpointer.request_stop("enough");
  std::thread later([&] {
    EXPECT_TRUE(clock.waits(training));
    announcer.stop(now() + 15s);
  });
  EXPECT_TRUE(run->step().stop);
  later.join();
  EXPECT_EQ(waiting.status(), SaveStatus::staged);
  disk.finish(2);
  EXPECT_EQ(run->checkpointer.finish(), 75);
  EXPECT_EQ(waiting.status(), SaveStatus::durable);
  EXPECT_EQ(durable(), 12);
  EXPECT_THAT(log.text(), HasSubstr("no time for a save of step 13"));
}

// An evaluation keeps its image for a notice that may never come.
TEST_F(WaitingSave, IsNotGivenUpForAnEvaluationWithoutANotice) {
  options.writing.second_image = true;
  options.every = {SaveEvery::steps(1)};
  start();
  SlowDisk disk(volume);
  run->step();
  disk.await(1);
  const SaveHandle waiting = run->step().save;
  ASSERT_EQ(waiting.status(), SaveStatus::staged);
  EXPECT_FALSE(run->step().saved) << "both images are in use";
  std::thread later([&] {
    EXPECT_TRUE(clock.waits(training, [&] { return waiting.status() != SaveStatus::staged; }));
    disk.finish(1);
  });
  {
    const Checkpointer::EvaluationScope scope(run->checkpointer);
    later.join();
    disk.finish(10);
    EXPECT_EQ(waiting.wait(), SaveStatus::durable);
    run->checkpointer.request_stop("enough");
    EXPECT_TRUE(run->checkpointer.tick());
    EXPECT_TRUE(soon([&] { return durable() == 3; })) << "it has its own image";
  }
}

// A notice that leaves no time for the evaluation's commit.
TEST_F(WaitingSave, IsNotGivenUpForAnEvaluationThatComesTooLate) {
  options.writing.second_image = true;
  commit = 20s;
  start_measured();
  SlowDisk disk(volume);
  step_and_save();
  disk.await(1);
  const SaveHandle waiting = step_and_save();
  run->step();
  announcer.deadline(now() + 15s);
  std::thread later([&] {
    EXPECT_TRUE(clock.waits(training, [&] { return waiting.status() != SaveStatus::staged; }));
    disk.finish(1);
  });
  {
    const Checkpointer::EvaluationScope scope(run->checkpointer);
    later.join();
    disk.finish(10);
  }
  EXPECT_EQ(waiting.wait(), SaveStatus::durable);
}

// One image is what the program has memory for.
TEST_F(WaitingSave, OutOfTimeTakesNoSecondImage) {
  start_measured();
  SlowDisk disk(volume);
  step_and_save();
  disk.await(1);
  run->step();
  announcer.deadline(now() + 8s);
  const std::int64_t copies = run->source.copies;
  std::thread later([&] {
    EXPECT_TRUE(clock.waits(training));
    volume.clock.advance(9s);
  });
  const SaveHandle save = run->checkpointer.save();
  later.join();
  EXPECT_EQ(save.status(), SaveStatus::failed);
  EXPECT_THAT(save.error(), HasSubstr("no image became free before the announced end"));
  EXPECT_EQ(run->source.copies, copies);
}

}}  // namespace holdfast::test
