// The way of one save, and which step boundaries still need one.
#include "holdfast/checkpoint/internal/save_flow.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "engine_rig.h"
#include "slow_disk.h"

namespace holdfast::test { namespace {

using internal::SaveFlow;
using testing::ElementsAre;
using testing::HasSubstr;

class SaveFlowTest : public EngineTest {
 protected:
  SaveFlow& saves() { return engine->saves; }
};

TEST_F(SaveFlowTest, ABoundaryIsCoveredByAnOpenSaveAndSafeOnceThatIsDurable) {
  start();
  step();
  EXPECT_FALSE(saves().covered());
  {
    SlowDisk disk(volume);
    submit();
    EXPECT_TRUE(saves().covered());
    EXPECT_FALSE(saves().safe());
  }
  saves().newest().wait();
  EXPECT_TRUE(saves().safe());
  EXPECT_EQ(saves().reached().durable, 1);
  step();
  EXPECT_FALSE(saves().covered()) << "that save is of the step before";
  EXPECT_FALSE(saves().reached().standing.covered);
}

TEST_F(SaveFlowTest, AFailedSaveCoversNothing) {
  start();
  step();
  break_disk();
  EXPECT_EQ(submit().wait(), SaveStatus::failed);
  EXPECT_FALSE(saves().covered());
  mend_disk();
  save();
  expect_newest(1);
}

TEST_F(SaveFlowTest, TheBoundaryThatWasLoadedIsSafe) {
  start();
  steps(3);
  save();
  end();
  start();
  EXPECT_EQ(source.step(), 3);
  EXPECT_TRUE(saves().safe());
  run->started.is_safe = false;  // of a branch, or another directory
  EXPECT_FALSE(saves().covered());
}

TEST_F(SaveFlowTest, TheImageOfASaveCanBeUsedWhileTheWriterHoldsIt) {
  start();
  step();
  SlowDisk disk(volume);
  const SaveHandle saved = submit();
  const Staged image = saves().image_in_use();
  ASSERT_TRUE(image);
  EXPECT_EQ(image.snapshot->step, 1);
  step();
  EXPECT_FALSE(saves().image_in_use()) << "of another step";
}

TEST_F(SaveFlowTest, AnImageIsFreeOnceItsSaveIsOver) {
  start();
  step();
  save();
  EXPECT_FALSE(saves().image_in_use());
  EXPECT_TRUE(saves().wait_for_image(Duration::zero()));
}

TEST_F(SaveFlowTest, WaitsForAnImageNoLongerThanItsLimit) {
  start();
  step();
  SlowDisk disk(volume);
  submit();
  disk.await(1);
  EXPECT_FALSE(saves().wait_for_image(Duration::zero()));
  disk.finish();
  EXPECT_TRUE(saves().wait_for_image());
}

TEST_F(SaveFlowTest, ASaveThatWaitsForItsTurnMakesRoom) {
  options.writing.second_image = true;
  start();
  SlowDisk disk(volume);
  step();
  const SaveHandle writing = submit();
  disk.await(1);
  step();
  const SaveHandle waiting = submit();
  EXPECT_TRUE(saves().wait_for_image(Duration::zero()));
  EXPECT_EQ(waiting.status(), SaveStatus::overtaken);
  EXPECT_EQ(writing.status(), SaveStatus::staged);
}

TEST_F(SaveFlowTest, ASaveThatWasAskedForMakesRoomAgainstTimeOnly) {
  options.writing.second_image = true;
  start();
  SlowDisk disk(volume);
  step();
  submit();
  disk.await(1);
  step();
  const SaveHandle waiting = submit(true);
  EXPECT_FALSE(saves().wait_for_image(Duration::zero()));
  EXPECT_EQ(waiting.status(), SaveStatus::staged);
  deadline(1h);
  EXPECT_TRUE(saves().wait_for_image(Duration::zero()));
  EXPECT_EQ(waiting.status(), SaveStatus::overtaken);
}

TEST_F(SaveFlowTest, AWaitAgainstTimeLiftsTheSpeedLimit) {
  start();
  step();
  SlowDisk disk(volume);
  submit();
  disk.await(1);
  EXPECT_FALSE(saves().wait_for_image(Duration::zero()));
  EXPECT_FALSE(engine->limit.lifted());
  stop();
  EXPECT_FALSE(saves().wait_for_image(Duration::zero()));
  EXPECT_TRUE(engine->limit.lifted());
}

// Whatever a state's owner throws.
TEST_F(SaveFlowTest, AFailureIsOneOfTheWriterToo) {
  start();
  step();
  for (const bool begun : {false, true}) {
    const BegunSave save = begun ? saves().begin(false) : nullptr;
    SaveHandle failed;
    try {
      begun ? throw 7 : throw std::runtime_error("planted");
    } catch (...) {
      failed = saves().fail(save);
    }
    EXPECT_EQ(failed.status(), SaveStatus::failed);
    EXPECT_EQ(failed.step(), 1);
    const char* text =
        begun ? "staging step 1 failed: an exception of unknown type" : "staging step 1 failed: planted";
    EXPECT_EQ(failed.error(), text);
    EXPECT_EQ(run->writer->failure(), text);
    EXPECT_FALSE(saves().covered());
  }
}

TEST_F(SaveFlowTest, TellsTheOthersBeforeTheWriterNeedsThem) {
  start();
  step();
  save();
  EXPECT_THAT(partners.calls(), ElementsAre("add_values", "plan", "join", "joined"));
}

TEST_F(SaveFlowTest, WhatAnotherThreadSubmittedIsTheNewestSave) {
  start();
  step();
  const BegunSave save = saves().begin(false);
  saves().submitted(save);
  EXPECT_EQ(saves().newest().step(), 1);
  EXPECT_TRUE(saves().covered());
  EXPECT_THAT(partners.calls(), ElementsAre("committed_from_shelf"));
  EXPECT_FALSE(save->asked_for);
  saves().ask_for_newest();
  EXPECT_TRUE(save->asked_for);
  save->settle(SaveStatus::failed, "planted");
}

TEST_F(SaveFlowTest, FiguresTellWhatTheTrainingWaitedFor) {
  start();
  step();
  const BegunSave save = saves().begin(false);
  Staged staged = saves().stage_all();
  clock.advance(1s);
  saves().submit(std::move(staged), save, 3s);
  saves().newest().wait();
  const SaveFigures figures = saves().newest().figures();
  EXPECT_EQ(figures.blocked, 3s);
  EXPECT_EQ(figures.staging, 1s) << "from the boundary on";
  EXPECT_GT(figures.staged, 0u);
}

}}  // namespace holdfast::test
