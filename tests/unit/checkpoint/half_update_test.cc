// Between before_update() and the end of after_step() memory is no step boundary: nothing new is committed
// from it, whatever the program calls then, and the older file stands.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "together.h"

namespace holdfast::test { namespace {

using testing::HasSubstr;
using testing::Not;

// What a failing optimizer.step() leaves: some weights have moved, others have not.
void half_update(Attempt& run) {
  run.checkpointer.before_update();
  for (std::size_t i = 0; i < 500; ++i) run.source.weight(i) += 1;
}

// The newest checkpoint, and whether it is what an uninterrupted run has at that step.
void expect_newest(Volume& volume, std::int64_t step) {
  Attempt next(volume.options());
  EXPECT_EQ(next.resumed.step, step);
  EXPECT_EQ(next.state(), state_after(step));
}

void train_and_save(Attempt& run, std::int64_t saved, std::int64_t last) {
  run.train_to(saved);
  ASSERT_EQ(run.checkpointer.save().wait(), SaveStatus::durable);
  run.train_to(last);
}

TEST(HalfUpdate, FinishCommitsNothingOfIt) {
  for (const bool stopped : {false, true}) {
    Volume volume;
    CapturedLog log;
    {
      Attempt run(volume.options());
      train_and_save(run, 2, 3);
      half_update(run);
      if (stopped) run.checkpointer.request_stop("SIGTERM");
      EXPECT_EQ(run.checkpointer.finish(), stopped ? 75 : 70);
      EXPECT_EQ(run.checkpointer.last_durable().step, 2);
      EXPECT_THAT(run.checkpointer.stop_reason(), HasSubstr("before_update()"));
    }
    expect_newest(volume, 2);
    EXPECT_THAT(log.text(), HasSubstr("step 2 is the newest that is durable"));
  }
}

TEST(HalfUpdate, FinishIsNotCompleteWhereTheStepBeforeIsDurable) {
  Volume volume;
  CapturedLog log;
  {
    Attempt run(volume.options());
    train_and_save(run, 3, 3);
    half_update(run);
    EXPECT_EQ(run.checkpointer.finish(), 70);
  }
  expect_newest(volume, 3);
}

TEST(HalfUpdate, SaveIsRefusedAndMadeAtTheNextBoundary) {
  Volume volume;
  CapturedLog log;
  {
    Attempt run(volume.options());
    train_and_save(run, 2, 3);
    run.checkpointer.before_update();
    const float before = std::exchange(run.source.weight(7), 9.0F);
    const SaveHandle refused = run.checkpointer.save();
    EXPECT_EQ(refused.wait(), SaveStatus::failed);
    EXPECT_THAT(refused.error(), HasSubstr("before_update()"));
    run.checkpointer.request_save();
    run.checkpointer.tick();
    EXPECT_EQ(volume.checkpoints().size(), 1u);
    run.source.weight(7) = before;
    EXPECT_TRUE(run.step().saved);
    EXPECT_EQ(run.checkpointer.save().wait(), SaveStatus::durable);
    EXPECT_EQ(run.step().failure, std::nullopt);
  }
  expect_newest(volume, 4);
}

TEST(HalfUpdate, ABestMetricInsideSavesNothing) {
  Volume volume;
  CapturedLog log;
  CheckpointerOptions options = volume.options();
  options.keep = KeepBest{.metric = "accuracy", .better = Better::higher};
  {
    Attempt run(options);
    train_and_save(run, 2, 3);
    half_update(run);
    run.checkpointer.metric("accuracy", 0.5);
    EXPECT_EQ(run.checkpointer.finish(), 70);
  }
  expect_newest(volume, 2);
}

TEST(HalfUpdate, AnEvaluationInsideCommitsNothing) {
  Volume volume;
  CapturedLog log;
  {
    Attempt run(volume.options());
    train_and_save(run, 2, 3);
    half_update(run);
    {
      const Checkpointer::EvaluationScope scope(run.checkpointer);
      run.checkpointer.request_stop("SIGTERM");
      EXPECT_TRUE(run.checkpointer.tick());
    }
    EXPECT_EQ(run.checkpointer.finish(), 75);
  }
  expect_newest(volume, 2);
}

TEST(HalfUpdate, WhatWasStagedBeforeItIsCommitted) {
  Volume volume;
  CapturedLog log;
  {
    Attempt run(volume.options({SaveEvery::steps(2)}));
    run.checkpointer.before_update();
    run.step();
    run.checkpointer.before_update();
    EXPECT_TRUE(run.step().saved);  // open until the next update
    half_update(run);
    EXPECT_EQ(run.checkpointer.finish(), 70);
    EXPECT_EQ(run.checkpointer.last_durable().step, 2);
  }
  expect_newest(volume, 2);
}

// The update was made and nobody counted it.
TEST(HalfUpdate, AStepThatThrowsInsideAfterStepIsNoBoundary) {
  Volume volume;
  CapturedLog log;
  {
    Attempt run(volume.options());
    train_and_save(run, 2, 3);
    run.source.on_advance = [] { throw std::runtime_error("planted"); };
    EXPECT_THROW(run.step(), std::runtime_error);
    run.checkpointer.request_stop("SIGTERM");
    EXPECT_EQ(run.checkpointer.finish(), 75);
  }
  expect_newest(volume, 2);
}

TEST(HalfUpdate, TheDestructorCommitsNothingOfIt) {
  Volume volume;
  CapturedLog log;
  {
    Attempt run(volume.options());
    train_and_save(run, 2, 3);
    run.checkpointer.request_save();
    half_update(run);
  }
  expect_newest(volume, 2);
}

// Every rank holds the boundary but one: what all would write together is of no step.
using HalfUpdateOfRanks = Together;
TEST_F(HalfUpdateOfRanks, NoRankCommitsWhereOneIsInsideAnUpdate) {
  for (const bool stopped : {false, true}) {
    CapturedLog log;
    start_over();
    options = volume->options({SaveEvery::steps(2)});
    live(2, [&](Member& one) {
      one.train_to(5);
      if (one.rank == 1) {
        one.checkpointer->before_update();
        one.source.weight(3) += 1;
        if (stopped) one.checkpointer->request_stop("SIGTERM");
      }
      one.finish();
    });
    EXPECT_EQ(codes(), (std::vector<int>{stopped ? 75 : 70, stopped ? 75 : 70}));
    for (const std::string& name : volume->checkpoints()) EXPECT_THAT(name, Not(HasSubstr("05-a"))) << name;
    EXPECT_THAT(log.text(), HasSubstr("rank 1"));
  }
}

}}  // namespace holdfast::test
