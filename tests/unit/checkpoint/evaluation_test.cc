// Between two steps, while the state stands still for the run, but not in memory.
#include "holdfast/checkpoint/internal/evaluation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "engine_rig.h"
#include "slow_disk.h"

namespace holdfast::test { namespace {

using internal::Evaluation;
using testing::HasSubstr;

class EvaluationTest : public EngineTest {
 protected:
  Evaluation& evaluation() { return engine->evaluation; }
  void enter() {
    evaluation().enter();
    evaluation().keep_boundary();
  }
  void enter_without_image() {
    source.on_copy = [] { throw Error("planted"); };
    enter();
    EXPECT_FALSE(evaluation().image());
    source.on_copy = {};
  }
  bool due() {
    RunRecord record;
    engine->boundary.note_in(record);
    return record.evaluation_due;
  }
};

TEST_F(EvaluationTest, AStopInsideCommitsTheBoundary) {
  start();
  steps(3);
  enter();
  EXPECT_TRUE(evaluation().running());
  source.evaluate();
  source.weight(0) = 7;
  stop();
  evaluation().tick(true);
  evaluation().leave(false, false);
  EXPECT_EQ(engine->saves.newest().wait(), SaveStatus::durable);
  EXPECT_TRUE(due()) << "it was cut short";
  expect_newest(3);
}

TEST_F(EvaluationTest, UsesTheImageOfASaveThatIsUnderWay) {
  start();
  step();
  SlowDisk disk(volume);
  submit();
  const std::int64_t copies = source.copies;
  enter();
  ASSERT_TRUE(evaluation().image());
  EXPECT_EQ(source.copies, copies);
  EXPECT_TRUE(run_record_of(evaluation().image().snapshot->attributes).evaluation_due)
      << "the save under way does not say so";
  EXPECT_TRUE(evaluation().commit()) << "that save is this boundary's";
  disk.finish();
  engine->saves.newest().wait();
  evaluation().leave(false, false);
  EXPECT_EQ(run->book->figures().durable, 1);
}

TEST_F(EvaluationTest, UsesTheImageOfACopyThatIsOpen) {
  start();
  step(true);
  const BegunSave save = engine->saves.begin(false);
  engine->late.begin(save, Waiting(run->time));
  const std::int64_t copies = source.copies;
  enter();
  EXPECT_TRUE(evaluation().image());
  EXPECT_EQ(source.copies, copies);
  evaluation().settle_late();
  EXPECT_EQ(SaveHandle(save).status(), SaveStatus::overtaken) << "from now on the image stands for it";
}

TEST_F(EvaluationTest, WhatWasThrownOutWithoutAnImageIsNeverCommitted) {
  start();
  steps(2);
  save();
  step();
  enter_without_image();
  source.weight(0) = 7;
  evaluation().leave(true, false);
  EXPECT_THROW(evaluation().check_memory(), Error);

  enter();  // a second one at the same step, which could copy
  EXPECT_FALSE(evaluation().image());
  EXPECT_FALSE(evaluation().commit());
  evaluation().leave(false, false);
  EXPECT_THROW(evaluation().check_memory(), Error) << "what the first one did to memory, stays";
  EXPECT_EQ(save_now().status(), SaveStatus::failed);
  EXPECT_TRUE(evaluation().unsure());
  expect_newest(2);
}

TEST_F(EvaluationTest, TheImageOfOneThatWasBrokenOffOutlivesASecondOne) {
  options.writing.second_image = true;
  for (const bool thrown_out : {true, false}) {
    start();
    step();
    const std::int64_t boundary = source.step();
    enter();
    source.weight(0) = 7;
    if (!thrown_out) evaluation().cut_short();
    evaluation().leave(thrown_out, false);
    const Staged first = evaluation().image();
    enter();
    evaluation().want_best();
    EXPECT_FALSE(evaluation().leave(false, false)) << "what it measured is of no step";
    EXPECT_EQ(evaluation().image().snapshot, first.snapshot);
    EXPECT_TRUE(due());
    EXPECT_EQ(save_now().wait(), SaveStatus::durable);
    expect_newest(boundary);
  }
}

TEST_F(EvaluationTest, TheNextStepIsABoundaryAgain) {
  start();
  step();
  enter_without_image();
  evaluation().leave(true, false);
  step();
  EXPECT_NO_THROW(evaluation().check_memory());
  EXPECT_FALSE(evaluation().unsure());
  enter();
  EXPECT_TRUE(evaluation().image());
}

// What another rank knows, no image can help.
TEST_F(EvaluationTest, SeveralRanksKeepNoImageOfWhatOneOfThemBrokeOff) {
  start();
  step();
  enter();
  evaluation().cut_short();
  evaluation().leave(false, true);
  EXPECT_FALSE(evaluation().image());
  EXPECT_FALSE(engine->boundary.disturbed()) << "it ended in order";
  step();
  enter();
  evaluation().leave(true, true);
  EXPECT_TRUE(engine->boundary.disturbed());
}

TEST_F(EvaluationTest, TheBestIsSavedAfterAnEvaluationThatCameToItsEnd) {
  start();
  for (const bool thrown_out : {true, false}) {
    step();
    evaluation().drop_image();
    enter();
    evaluation().want_best();
    EXPECT_EQ(evaluation().leave(thrown_out, false), !thrown_out);
    EXPECT_EQ(due(), thrown_out);
    EXPECT_EQ(static_cast<bool>(evaluation().image()), thrown_out) << "the boundary is what counts";
  }
  enter();
  EXPECT_FALSE(evaluation().leave(false, false)) << "that wish was of the one before";
}

TEST_F(EvaluationTest, ARequestInsideIsOverOnceTheBoundaryIsOnItsWay) {
  options.every = {SaveEvery::steps(10)};
  start();
  steps(3);
  for (const bool copied : {false, true}) {
    copied ? enter() : enter_without_image();
    run->monitor.post({.source = "test", .kind = NoticeKind::checkpoint_now, .text = "save"});
    evaluation().tick(false);
    EXPECT_EQ(engine->schedule.wanted(), !copied);
    evaluation().leave(false, false);
  }
  EXPECT_EQ(engine->saves.newest().wait(), SaveStatus::durable);
  EXPECT_EQ(engine->schedule.next_due_step(clock.now()), 13) << "the next save falls due from there";
  EXPECT_FALSE(due());
}

TEST_F(EvaluationTest, ALookOutsideTakesNothing) {
  start();
  step();
  run->monitor.post({.source = "test", .kind = NoticeKind::checkpoint_now, .text = "save"});
  evaluation().tick(false);
  EXPECT_TRUE(run->monitor.pending());
  EXPECT_FALSE(engine->saves.covered());
}

TEST_F(EvaluationTest, ABoundaryThatIsSafeIsNotWrittenAgain) {
  start();
  step();
  save();
  for (const bool loaded : {false, true}) {
    if (loaded) {
      end();
      start();
    }
    enter();
    stop();
    evaluation().tick(true);
    evaluation().leave(false, false);
    EXPECT_TRUE(engine->saves.safe());
    EXPECT_EQ(run->book->figures().durable, loaded ? 0 : 1);
    EXPECT_EQ(volume.checkpoints().size(), 1u);
  }
}

TEST_F(EvaluationTest, WaitsForTheOnlyImageNoLongerThanHalfAMinute) {
  start();
  step();
  SlowDisk disk(volume);
  submit();
  disk.await(1);
  step();
  std::atomic<bool> over{false};
  std::thread time([&] {
    while (!over) {
      clock.advance(1s);
      std::this_thread::sleep_for(1ms);
    }
  });
  enter();
  over = true;
  time.join();
  EXPECT_FALSE(evaluation().image());
  EXPECT_THAT(run->writer->failure().value_or(""), HasSubstr("the only image is still being written"));
  EXPECT_FALSE(evaluation().commit());
}

TEST_F(EvaluationTest, InsideAnUpdateThereIsNoBoundaryToKeep) {
  start();
  step();
  EXPECT_EQ(evaluation().why_torn(), "");
  partners.torn = 3;
  EXPECT_THAT(evaluation().why_torn(), HasSubstr("rank 3 is inside an update"));
  partners.torn = -1;
  announce();
  EXPECT_THAT(evaluation().why_torn(), HasSubstr("the update of step 2 has begun"));
  enter();
  EXPECT_FALSE(evaluation().image());
  EXPECT_THROW(evaluation().check_memory(), Error);
}

TEST_F(EvaluationTest, AStepInsideLeavesTheNewBoundaryToBeEvaluated) {
  start();
  step();
  enter();
  EXPECT_TRUE(evaluation().meets_step());
  step();
  evaluation().step_inside();
  EXPECT_FALSE(evaluation().image()) << "it is of the step before";
  EXPECT_TRUE(due());
}

TEST_F(EvaluationTest, OneInsideAnotherIsAMistake) {
  start();
  enter();
  EXPECT_THROW(evaluation().enter(), UsageError);
}

}}  // namespace holdfast::test
