// Staging beside the next step: what is committed is the state of the step boundary, bit for bit, whatever
// the loop does before it closes the snapshot.
#include <atomic>
#include <cstdlib>
#include <thread>

#include "rig.h"

namespace holdfast::test { namespace {

using testing::HasSubstr;
using testing::Not;

// A loop that announces its updates.
struct Announcing : Attempt {
  using Attempt::Attempt;
  Decision announced_step() {
    checkpointer.before_update();
    return step();
  }
  void await_durable(std::int64_t step) {
    while (checkpointer.last_durable().step < step) std::this_thread::yield();
  }
  // What changes from now on is not in it.
  void complete_copy() { const Checkpointer::EvaluationScope scope(checkpointer); }
  // The update is about to come: what was staged for this step is written, and its image is free again.
  void close_and_wait() {
    checkpointer.before_update();
    EXPECT_EQ(checkpointer.save().wait(), SaveStatus::durable);
  }
  // The same, whatever becomes of it.
  void close_and_settle() {
    checkpointer.before_update();
    checkpointer.save().wait();
  }
};

// The state that a new attempt on this volume begins with.
std::string resumed_state(Volume& volume, std::int64_t expected_step) {
  Attempt next(volume.options());
  EXPECT_EQ(next.resumed.step, expected_step);
  return next.state();
}

TEST(LateStaging, TheTrainingDoesNotWaitForTheCopy) {
  Volume volume;
  Gate gate;
  {
    Announcing run(volume.options({SaveEvery::steps(2)}));
    while (run.source.step() < 5) {  // the first two are copied at once, to be compared
      run.announced_step();
      if (run.source.step() % 2 == 0) run.close_and_wait();
    }
    run.source.on_late_copy = [&gate] { gate.pass(); };
    EXPECT_TRUE(run.announced_step().saved);  // returns although nobody may copy
    EXPECT_EQ(run.source.late_copies, 3);
    gate.await_arrival();
    gate.open();
    run.announced_step();
    run.await_durable(6);
  }
  EXPECT_EQ(resumed_state(volume, 6), state_after(6));
}

// A copy that ran beside the training, after the change, would hold it, and agree with live memory.
TEST(LateStaging, WhatIsComparedIsOlderThanTheTrainingThatFollows) {
  Volume volume;
  Announcing run(volume.options({SaveEvery::steps(1)}));
  std::atomic<int> beside{0};
  const auto training = std::this_thread::get_id();
  run.source.on_late_copy = [&] { beside += std::this_thread::get_id() == training ? 0 : 1; };
  run.announced_step();
  run.announced_step();
  EXPECT_EQ(beside, 0);
}

TEST(LateStaging, NothingIsWrittenBeforeTheUpdateIsAnnounced) {
  Volume volume;
  Announcing run(volume.options({SaveEvery::steps(2)}));
  run.announced_step();
  const int before = volume.faults.count(Op::create);
  run.announced_step();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(volume.faults.count(Op::create), before);
  run.checkpointer.before_update();
  run.await_durable(2);
  EXPECT_GT(volume.faults.count(Op::create), before);
}

TEST(LateStaging, ALoopThatDoesNotAnnounceGetsAWholeCopy) {
  Volume volume;
  Attempt run(volume.options({SaveEvery::steps(2)}));
  run.train_to(6);
  EXPECT_EQ(run.source.late_copies, 0);
  EXPECT_EQ(run.checkpointer.last_durable().step, 6);
}

TEST(LateStaging, AnUnannouncedUpdateDropsTheSaveAndMakesItAgain) {
  Volume volume;
  CapturedLog log;
  {
    Announcing run(volume.options({SaveEvery::steps(2)}));
    run.announced_step();
    EXPECT_TRUE(run.announced_step().saved);
    EXPECT_TRUE(run.step().saved);  // unannounced: the state of step 2 is gone
    run.await_durable(3);
    for (int i = 0; i < 6; ++i) run.announced_step();
    EXPECT_EQ(run.source.late_copies, 1);  // never again
    EXPECT_EQ(run.checkpointer.finish(), 0);
  }
  for (const std::string& name : volume.checkpoints()) EXPECT_THAT(name, Not(HasSubstr("02-a"))) << name;
  EXPECT_THAT(log.text(), HasSubstr("before_update() was not called before the update of step 3"));
  EXPECT_EQ(resumed_state(volume, 9), state_after(9));
}

TEST(LateStaging, ASaveAskedForMeanwhileTakesItsPlace) {
  Volume volume;
  Announcing run(volume.options({SaveEvery::steps(2)}));
  run.announced_step();
  run.announced_step();
  const SaveHandle handle = run.checkpointer.save();
  EXPECT_EQ(handle.step(), 2);
  EXPECT_EQ(handle.wait(), SaveStatus::durable);
  EXPECT_EQ(volume.checkpoints().size(), 1u);
  EXPECT_FALSE(run.announced_step().saved);
  EXPECT_TRUE(run.announced_step().saved);
  EXPECT_EQ(run.source.late_copies, 2);  // the way of staging stays
  run.checkpointer.before_update();
  run.await_durable(4);
}

TEST(LateStaging, TheEndTakesItsPlace) {
  for (const bool stopped : {false, true}) {
    Volume volume;
    {
      Announcing run(volume.options({SaveEvery::steps(2)}));
      run.announced_step();
      run.announced_step();
      if (stopped) run.checkpointer.request_stop("test");
      EXPECT_EQ(run.checkpointer.finish(), stopped ? 75 : 0);
      EXPECT_EQ(run.checkpointer.last_durable().step, 2);
    }
    EXPECT_EQ(resumed_state(volume, 2), state_after(2));
  }
}

TEST(LateStaging, AStopCommitsItsOwnStepWhole) {
  Volume volume;
  {
    Announcing run(volume.options({SaveEvery::steps(2)}));
    run.announced_step();
    run.announced_step();
    run.checkpointer.request_stop("test");
    EXPECT_TRUE(run.announced_step().stop);
    EXPECT_EQ(run.source.late_copies, 1);
    EXPECT_EQ(run.checkpointer.finish(), 75);
    EXPECT_EQ(run.checkpointer.last_durable().step, 3);
  }
  EXPECT_EQ(resumed_state(volume, 3), state_after(3));
}

TEST(LateStaging, AnEvaluationMaySwapWeights) {
  Volume volume;
  {
    Announcing run(volume.options({SaveEvery::steps(2)}));
    run.announced_step();
    std::atomic<bool> inside{false};
    std::atomic<int> begun_inside{0};
    run.source.on_late_copy = [&] { begun_inside += inside ? 1 : 0; };
    run.announced_step();
    {
      const Checkpointer::EvaluationScope scope(run.checkpointer);
      inside = true;
      std::vector<float> own(1000);
      for (std::size_t i = 0; i < own.size(); ++i) own[i] = std::exchange(run.source.weight(i), 7.0F);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      for (std::size_t i = 0; i < own.size(); ++i) run.source.weight(i) = own[i];
      inside = false;
    }
    run.checkpointer.before_update();
    run.await_durable(2);
  }
  EXPECT_EQ(resumed_state(volume, 2), state_after(2));
}

TEST(LateStaging, AStopInsideAnEvaluationCommitsTheBoundary) {
  Volume volume;
  {
    Announcing run(volume.options({SaveEvery::steps(2)}));
    run.announced_step();
    run.announced_step();
    {
      const Checkpointer::EvaluationScope scope(run.checkpointer);
      run.source.evaluate();
      run.checkpointer.request_stop("test");
      EXPECT_TRUE(run.checkpointer.tick());
    }
    EXPECT_EQ(run.checkpointer.finish(), 75);
  }
  EXPECT_EQ(resumed_state(volume, 2), state_after(2));
}

TEST(LateStaging, WhatChangesTooEarlyIsNamedAndCopiedEarly) {
  Volume volume;
  CapturedLog log;
  float at_boundary = 0;
  {
    Announcing run(volume.options({SaveEvery::steps(2)}));
    run.announced_step();
    EXPECT_TRUE(run.announced_step().saved);
    run.complete_copy();
    run.source.weight(3) += 1;
    run.checkpointer.before_update();
    EXPECT_TRUE(run.announced_step().saved);  // made again
    run.close_and_wait();
    run.announced_step();
    EXPECT_TRUE(run.announced_step().saved);
    at_boundary = run.source.weight(3);
    run.source.weight(3) += 1;
    run.checkpointer.before_update();
    run.await_durable(5);
  }
  const std::string said = log.text();
  EXPECT_THAT(said, HasSubstr("model/weight changed between after_step and before_update"));
  EXPECT_EQ(said.find("changed between"), said.rfind("changed between")) << "said once";
  EXPECT_EQ(volume.checkpoints().size(), 2u);
  Attempt next(volume.options());
  ASSERT_EQ(next.resumed.step, 5);
  EXPECT_EQ(next.source.weight(3), at_boundary);
}

TEST(LateStaging, EverySaveIsComparedWhenAskedTo) {
  for (const bool asked : {false, true}) {
    if (asked) setenv("HOLDFAST_CHECK_STAGING", "1", 1);
    Volume volume;
    CapturedLog log;
    {
      Announcing run(volume.options({SaveEvery::steps(1)}));
      for (int step = 1; step <= 4; ++step) {
        EXPECT_TRUE(run.announced_step().saved) << step;
        run.close_and_wait();
      }
      run.announced_step();
      run.complete_copy();
      run.source.weight(3) += 1;
      run.checkpointer.before_update();
    }
    unsetenv("HOLDFAST_CHECK_STAGING");
    EXPECT_EQ(log.text().find("model/weight changed") != std::string::npos, asked);
  }
}

// A second optimizer that steps now and then before the announcement, long after the first saves.
TEST(LateStaging, AnUpdateBeforeTheAnnouncementIsSeenAtEverySave) {
  Volume volume;
  CapturedLog log;
  {
    Announcing run(volume.options({SaveEvery::steps(1)}));
    for (int step = 1; step <= 4; ++step) {
      EXPECT_TRUE(run.announced_step().saved) << step;
      run.close_and_wait();
    }
    EXPECT_TRUE(run.announced_step().saved);
    run.complete_copy();
    for (std::size_t i = 0; i < 1000; ++i) run.source.weight(i) += 0.125F;
    run.checkpointer.before_update();
    EXPECT_EQ(run.decision.save.status(), SaveStatus::overtaken);
    EXPECT_TRUE(run.announced_step().saved);  // made again
  }
  EXPECT_THAT(log.text(), HasSubstr("model/weight changed between after_step and before_update"));
  for (const std::string& name : volume.checkpoints()) EXPECT_THAT(name, Not(HasSubstr("05-a"))) << name;
}

TEST(LateStaging, AStateThatCannotBePreparedIsAFailedSave) {
  Volume volume;
  CapturedLog log;
  Announcing run(volume.options({SaveEvery::steps(2)}));
  run.announced_step();
  int looks = 0;
  run.source.on_copy = [&looks] {
    if (++looks == 2) throw Error("planted");  // the first is the early part
  };
  EXPECT_THAT(run.announced_step().failure.value_or(""), HasSubstr("planted"));
  run.announced_step();
  EXPECT_TRUE(run.announced_step().saved);
  run.checkpointer.before_update();
  run.await_durable(4);
}

// For the thread sanitizer: reads beside the copy, updates right after it, faults in the writer.
TEST(LateStaging, RacesNothing) {
  Volume volume;
  volume.faults.fail(Op::create, 9, ENOSPC);
  volume.faults.fail(Op::write, 12, EIO);
  volume.faults.fail(Op::sync_file, 12, EIO);
  volume.faults.fail(Op::rename_new, 4, EIO);
  MemorySource::Options large;
  large.elements = 1 << 17;
  {
    Announcing run(volume.options({SaveEvery::steps(1)}), large);
    for (int i = 0; i < 40; ++i) {
      float sum = 0;
      for (std::size_t e = 0; e < large.elements; e += 1024) sum += run.source.weight(e);  // "forward"
      ASSERT_FALSE(std::isnan(sum));
      run.announced_step();
      if (i % 5 == 3) run.close_and_settle();  // so that there are enough writes for every fault
    }
    EXPECT_GT(run.source.late_copies, 5);
    EXPECT_EQ(run.checkpointer.finish(), 0);
  }
  EXPECT_EQ(volume.faults.faults_fired(), 4);
  Attempt next(volume.options(), large);
  EXPECT_EQ(next.resumed.step, 40);
  EXPECT_EQ(next.state(), state_after(40, large));
}

}}  // namespace holdfast::test
