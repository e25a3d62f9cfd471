// A step has one state: what was staged at its boundary is what is committed under its number.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "rig.h"

namespace holdfast::test { namespace {

// The loop is over; averaged weights go into the model's place for good.
TEST(OneStateAStep, FinishCommitsWhatWasStagedInTheLastStep) {
  for (const bool by_save : {false, true}) {
    Volume volume;
    CapturedLog log;
    {
      Attempt run(volume.options({SaveEvery::steps(2)}));
      for (int i = 0; i < 2; ++i) {
        run.checkpointer.before_update();
        run.step();
      }
      EXPECT_TRUE(run.decision.saved);
      for (std::size_t i = 0; i < 1000; ++i) run.source.weight(i) = 7;
      if (by_save) {
        EXPECT_EQ(run.checkpointer.save().wait(), SaveStatus::durable);
      }
      EXPECT_EQ(run.checkpointer.finish(), 0);
      EXPECT_EQ(run.decision.save.status(), SaveStatus::durable);
    }
    Attempt next(volume.options());
    EXPECT_EQ(next.resumed.step, 2);
    EXPECT_EQ(next.state(), state_after(2)) << by_save;
  }
}

// on_save runs inside the tick that hands the boundary over; it looks for the newest save.
TEST(OneStateAStep, ASaveAskedForByOnSaveInsideAnEvaluationIsTheSameOne) {
  Volume volume;
  CapturedLog log;
  CheckpointerOptions options = volume.options();
  Checkpointer* checkpointer = nullptr;
  const auto training = std::this_thread::get_id();
  std::atomic<int> asked{0};
  options.writing.on_save = [&](const SaveEvent& event) {
    if (event.status != SaveStatus::staged || std::this_thread::get_id() != training) return;
    if (asked++ == 0) {
      EXPECT_EQ(checkpointer->save().step(), 3);
    }
  };
  Attempt run(options);
  checkpointer = &run.checkpointer;
  run.train_to(3);
  {
    const Checkpointer::EvaluationScope scope(run.checkpointer);
    run.checkpointer.request_save();
    for (int i = 0; i < 3; ++i) run.checkpointer.tick();
  }
  run.checkpointer.request_stop("test");
  EXPECT_EQ(run.checkpointer.finish(), 75);
  EXPECT_EQ(run.checkpointer.last_durable().step, 3);
}

}}  // namespace holdfast::test
