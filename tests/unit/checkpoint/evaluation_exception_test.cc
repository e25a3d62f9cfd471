// An exception that ends an evaluation: what stands in memory is not the step's, so the boundary's image is
// what counts, and the evaluation is still due.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "together.h"

namespace holdfast::test { namespace {

using testing::Each;

// Averaged weights are in the model's place when it happens.
void throw_inside(Checkpointer& checkpointer, MemorySource& source) {
  try {
    const Checkpointer::EvaluationScope scope(checkpointer);
    for (std::size_t i = 0; i < 1000; ++i) source.weight(i) = 7;
    throw std::runtime_error("planted");
  } catch (const std::runtime_error&) {
  }
}

TEST(EvaluationException, FinishCommitsTheBoundaryAndItIsStillDue) {
  for (const bool announced : {false, true}) {
    const std::int64_t steps = announced ? 2 : 3;  // a save is open at the second, or none
    Volume volume;
    CapturedLog log;
    {
      Attempt run(volume.options({SaveEvery::steps(2)}));
      for (int i = 0; i < steps; ++i) {
        if (announced) run.checkpointer.before_update();
        run.step();
      }
      throw_inside(run.checkpointer, run.source);
      EXPECT_EQ(run.checkpointer.finish(), 0);
    }
    Attempt next(volume.options());
    EXPECT_EQ(next.resumed.step, steps);
    EXPECT_TRUE(next.resumed.evaluation_due) << announced;
    EXPECT_EQ(next.state(), state_after(steps));
  }
}

TEST(EvaluationException, SaveIsOfTheBoundary) {
  Volume volume;
  CapturedLog log;
  {
    Attempt run(volume.options());
    run.train_to(3);
    throw_inside(run.checkpointer, run.source);
    EXPECT_EQ(run.checkpointer.save().wait(), SaveStatus::durable);
  }
  Attempt next(volume.options());
  EXPECT_EQ(next.resumed.step, 3);
  EXPECT_TRUE(next.resumed.evaluation_due);
  EXPECT_EQ(next.state(), state_after(3));
}

// What the first one did to memory, the second one finds there.
TEST(EvaluationException, WithoutAnImageASecondOneAtThatStepCommitsNothingEither) {
  Volume volume;
  CapturedLog log;
  {
    Attempt run(volume.options());
    run.train_to(2);
    EXPECT_EQ(run.checkpointer.save().wait(), SaveStatus::durable);
    run.step();
    run.source.on_copy = [] { throw Error("planted"); };
    throw_inside(run.checkpointer, run.source);
    run.source.on_copy = {};
    {
      const Checkpointer::EvaluationScope scope(run.checkpointer);
      run.checkpointer.request_stop("SIGTERM");
      EXPECT_TRUE(run.checkpointer.tick());
      EXPECT_EQ(run.checkpointer.save().wait(), SaveStatus::failed);
    }
    EXPECT_EQ(run.checkpointer.finish(), 75);
  }
  Attempt next(volume.options());
  EXPECT_EQ(next.resumed.step, 2);
  EXPECT_EQ(next.state(), state_after(2));
}

// The image of the first one is the boundary: a second one neither replaces it by memory nor ends it.
TEST(EvaluationException, ASecondOneAtThatStepLeavesTheBoundaryAlone) {
  for (const bool second_image : {true, false}) {
    Volume volume;
    CapturedLog log;
    CheckpointerOptions options = volume.options();
    options.writing.second_image = second_image;
    {
      Attempt run(options);
      run.train_to(3);
      throw_inside(run.checkpointer, run.source);
      { const Checkpointer::EvaluationScope scope(run.checkpointer); }
      EXPECT_EQ(run.checkpointer.save().wait(), SaveStatus::durable);
      EXPECT_EQ(run.checkpointer.finish(), 0);
    }
    Attempt next(volume.options());
    EXPECT_EQ(next.resumed.step, 3);
    EXPECT_TRUE(next.resumed.evaluation_due) << "what the second one evaluated, was no step";
    ASSERT_EQ(next.state(), state_after(3)) << second_image;
  }
}

TEST(EvaluationException, WhatWasMeasuredBeforeItSavesNothing) {
  Volume volume;
  CapturedLog log;
  CheckpointerOptions options = volume.options();
  options.keep = KeepBest{.metric = "accuracy", .better = Better::higher};
  Attempt run(options);
  run.train_to(3);
  try {
    const Checkpointer::EvaluationScope scope(run.checkpointer);
    run.checkpointer.metric("accuracy", 0.5);
    run.source.weight(0) = 7;
    throw std::runtime_error("planted");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(run.checkpointer.last_durable().step, -1);
}

// A scope that ends in order while an exception is on its way through the program.
TEST(EvaluationException, AScopeInsideACleanUpIsNotCutShort) {
  Volume volume;
  CapturedLog log;
  {
    Attempt run(volume.options());
    run.train_to(3);
    struct CleanUp {
      ~CleanUp() { const Checkpointer::EvaluationScope scope(checkpointer); }
      Checkpointer& checkpointer;
    };
    try {
      const CleanUp clean_up{run.checkpointer};
      throw std::runtime_error("planted");
    } catch (const std::runtime_error&) {
    }
    EXPECT_EQ(run.checkpointer.finish(), 0);
  }
  EXPECT_FALSE(Attempt(volume.options()).resumed.evaluation_due);
}

// Rank 0's image of the boundary may be committed while another rank is still inside; what stands in memory
// after the exception never is.
class EvaluationExceptionOfRanks : public Together {
 protected:
  static void to_the_end(Member& one) {
    one.train_to(20);
    one.finish();
  }
};

TEST_F(EvaluationExceptionOfRanks, CommitsNothingButTheBoundary) {
  CapturedLog log;
  live(2, to_the_end);
  const auto end = states();
  for (int again = 0; again < 4; ++again) {  // ranks meet otherwise each time
    start_over();
    options = volume->options({SaveEvery::steps(2)});
    live(2, [](Member& one) {
      one.train_to(5);
      throw_inside(*one.checkpointer, one.source);
      one.checkpointer->request_stop("SIGTERM");
      one.finish();
    });
    EXPECT_EQ(codes(), (std::vector<int>{75, 75}));
    live(2, [](Member& one) {
      EXPECT_GE(one.resumed.step, 3);
      to_the_end(one);
    });
    EXPECT_THAT(errors(), Each(std::string()));
    EXPECT_EQ(states(), end);
  }
}

}}  // namespace holdfast::test
