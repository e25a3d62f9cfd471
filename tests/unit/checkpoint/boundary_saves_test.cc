// Saves of the boundary where the training stands: due, asked for, or the last one.
#include "holdfast/checkpoint/internal/boundary_saves.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "engine_rig.h"
#include "slow_disk.h"

namespace holdfast::test { namespace {

using internal::BoundarySaves;
using testing::HasSubstr;

class BoundarySavesTest : public EngineTest {
 protected:
  Decision save_by(const Plan& plan) {
    Decision decision;
    engine->boundary_saves.save(decision, plan);
    return decision;
  }
  Decision save_if_due() { return save_by({}); }
  void want() { engine->schedule.want(); }
};

TEST_F(BoundarySavesTest, ADueSaveBeginsAndTheNextCountsFromThere) {
  options.every = {SaveEvery::steps(3)};
  start();
  steps(2);
  EXPECT_FALSE(save_if_due().saved);
  step();
  const Decision third = save_if_due();
  EXPECT_TRUE(third.saved);
  EXPECT_EQ(third.save.step(), 3);
  EXPECT_EQ(third.save.wait(), SaveStatus::durable);
  EXPECT_EQ(engine->schedule.next_due_step(clock.now()), 6);
  EXPECT_FALSE(save_if_due().saved);
  expect_newest(3);
}

// A system call that fails is no reason to give the run up, nor to try at each step.
TEST_F(BoundarySavesTest, ALayoutThatFailsIsTriedAgainByTheNextSave) {
  options.every = {SaveEvery::steps(3)};
  start();
  step();
  source.on_describe = [] { throw IoError("create", "/dev/shm/plan", EMFILE); };
  const Decision first = save_if_due();
  EXPECT_EQ(first.save.status(), SaveStatus::failed);
  EXPECT_THAT(first.save.error(), HasSubstr("EMFILE"));
  EXPECT_FALSE(engine->saves.unsavable().known());
  step();
  EXPECT_EQ(save_if_due().save.step(), -1) << "no save is due";
  source.on_describe = {};
  steps(2);
  const Decision next = save_if_due();
  EXPECT_TRUE(next.saved);
  EXPECT_EQ(next.save.wait(), SaveStatus::durable);
}

TEST_F(BoundarySavesTest, AWishWaitsForAFreeImage) {
  start();
  SlowDisk disk(volume);
  step();
  want();
  const Decision first = save_if_due();
  EXPECT_TRUE(first.saved);
  EXPECT_FALSE(engine->schedule.wanted());
  step();
  want();
  EXPECT_FALSE(save_if_due().saved) << "the step does not wait for the disk";
  EXPECT_TRUE(engine->schedule.wanted());
  disk.finish();
  first.save.wait();
  step();
  EXPECT_TRUE(save_if_due().saved);
}

TEST_F(BoundarySavesTest, BeforeAnEndOnlyWhatIsUrgentBeginsWhereThereIsNoRoom) {
  start();
  step();
  want();
  EXPECT_FALSE(save_by({.move = Move::wait}).saved);
  EXPECT_FALSE(save_by({.move = Move::train, .room = false}).saved);
  EXPECT_TRUE(save_by({.move = Move::commit, .room = false}).saved);
}

TEST_F(BoundarySavesTest, AStopSavesTheBoundaryOnceAndWithoutALimit) {
  start();
  step();
  const Decision last = save_by({.move = Move::stop});
  EXPECT_TRUE(last.saved);
  EXPECT_TRUE(engine->limit.lifted());
  EXPECT_FALSE(save_by({.move = Move::stop}).saved) << "it is on its way";
  EXPECT_EQ(last.save.wait(), SaveStatus::durable);
  expect_newest(1);
}

TEST_F(BoundarySavesTest, ALastSaveThatComesTooLateDoesNotBegin) {
  start();
  step();
  EXPECT_FALSE(save_by({.move = Move::stop, .too_late = true}).saved);
  run->costs.committed(60s);
  deadline(30s);  // since the plan was made
  EXPECT_FALSE(save_by({.move = Move::last_commit}).saved);
  EXPECT_THAT(log.text(), HasSubstr("no time for a save of step 1"));
}

TEST_F(BoundarySavesTest, ALastSaveWaitsForAnImageAsLongAsThereIsTime) {
  start();
  step();
  SlowDisk disk(volume);
  submit();
  disk.await(1);
  step();
  run->monitor.post(
      {.source = "test", .kind = NoticeKind::stop, .deadline = clock.now() + 1s, .text = "SIGTERM"});
  clock.advance(2s);
  EXPECT_FALSE(engine->boundary_saves.save_last());
  disk.finish(2);
  engine->saves.newest().wait();
  EXPECT_TRUE(engine->boundary_saves.save_last());
  EXPECT_EQ(engine->saves.newest().wait(), SaveStatus::durable);
  expect_newest(2);
}

TEST_F(BoundarySavesTest, AStateThatCannotBeCopiedIsAFailedSave) {
  options.every = {SaveEvery::steps(3)};
  start();
  steps(3);
  source.on_copy = [] { throw Error("planted"); };
  const Decision failed = save_if_due();
  EXPECT_FALSE(failed.saved);
  EXPECT_EQ(failed.save.status(), SaveStatus::failed);
  EXPECT_THAT(failed.save.error(), HasSubstr("staging step 3 failed: planted"));
  EXPECT_TRUE(run->writer->failing());
  EXPECT_EQ(engine->schedule.next_due_step(clock.now()), 6) << "not again at every step";
}

TEST_F(BoundarySavesTest, WhatIsOnItsWayIsNotSavedTwice) {
  start();
  step();
  SlowDisk disk(volume);
  const SaveHandle due = submit();
  const SaveHandle asked = save_now();
  EXPECT_EQ(asked.step(), 1);
  EXPECT_FALSE(run->writer->recall(false)) << "somebody waits for it now";
  disk.finish();
  EXPECT_EQ(asked.wait(), SaveStatus::durable);
  EXPECT_EQ(run->book->figures().durable, 1);
}

TEST_F(BoundarySavesTest, ASaveInsideAnUpdateIsMadeAtTheNextBoundary) {
  start();
  step();
  announce();
  const SaveHandle refused = save_now();
  EXPECT_EQ(refused.status(), SaveStatus::failed);
  EXPECT_THAT(refused.error(), HasSubstr("the update of step 2 has begun"));
  EXPECT_TRUE(engine->schedule.wanted());
  step();
  EXPECT_TRUE(save_if_due().saved);
}

TEST_F(BoundarySavesTest, AnAnnouncedUpdateLetsTheCopyRunBesideIt) {
  start();
  step(true);
  want();
  EXPECT_TRUE(save_if_due().saved);
  EXPECT_TRUE(engine->late.open());
  step(true);
  engine->saves.newest().wait();
  EXPECT_TRUE(save_by({.move = Move::commit}).saved);
  EXPECT_FALSE(engine->late.open()) << "urgent";
  engine->saves.newest().wait();
  step(true);
  partners.shared_plan = 5;
  want();
  EXPECT_TRUE(save_if_due().saved);
  EXPECT_FALSE(engine->late.open()) << "the others would have to agree on its end";
}

TEST_F(BoundarySavesTest, TheDigestIsOfTheBoundary) {
  start();
  step();
  const Digest first = engine->boundary_saves.digest();
  EXPECT_TRUE(save_by({.move = Move::stop}).saved);
  engine->saves.newest().wait();
  source.weight(0) = 7;  // the program does something else before it asks
  EXPECT_EQ(engine->boundary_saves.digest(), first);
  source.weight(0) = 8;
  step();
  EXPECT_NE(engine->boundary_saves.digest(), first);
}

TEST_F(BoundarySavesTest, NothingBeginsOnceANewerAttemptHasTheDirectory) {
  start();
  step();
  const Attempt rival(volume.options());
  EXPECT_EQ(submit().wait(), SaveStatus::failed);
  step();
  EXPECT_FALSE(save_by({.move = Move::commit}).saved);
  EXPECT_TRUE(volume.checkpoints().empty());
}

}}  // namespace holdfast::test
