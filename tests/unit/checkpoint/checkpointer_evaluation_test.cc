// Interruptions while an evaluation runs: what is committed is the step boundary before it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "rig.h"

namespace holdfast::test { namespace {

std::string digest(Attempt& run) { return run.state(); }

TEST(EvaluationScope, AStopInsideCommitsTheBoundary) {
  Volume volume;
  CapturedLog log;
  std::string boundary;
  {
    Attempt run(volume.options());
    run.train_to(5);
    boundary = digest(run);
    {
      const Checkpointer::EvaluationScope scope(run.checkpointer);
      EXPECT_FALSE(run.checkpointer.tick());
      run.source.evaluate();
      run.checkpointer.request_stop("SIGTERM");
      EXPECT_TRUE(run.checkpointer.tick());
      run.source.evaluate();
    }
    EXPECT_EQ(run.checkpointer.finish(), 75);
    EXPECT_EQ(run.checkpointer.last_durable().step, 5);
    EXPECT_EQ(digest(run), boundary);
  }
  Attempt next(volume.options());
  EXPECT_EQ(next.resumed.step, 5);
  EXPECT_TRUE(next.resumed.evaluation_due);
  EXPECT_EQ(digest(next), boundary);
}

// The same run with and without an interruption inside its evaluation.
TEST(EvaluationScope, AnInterruptedEvaluationChangesNothing) {
  const auto run_all = [](int interrupt_at) {
    Volume volume;
    bool interrupted = false;
    while (true) {
      Attempt run(volume.options());
      bool due = run.resumed.evaluation_due;
      while (run.source.step() < 12 || due) {
        if (due || (run.source.step() % 4 == 0 && run.source.step() > run.resumed.step)) {
          due = false;
          const Checkpointer::EvaluationScope scope(run.checkpointer);
          for (int batch = 0; batch < 3; ++batch) {
            run.source.evaluate();
            if (!interrupted && run.source.step() == interrupt_at && batch == 1) {
              interrupted = true;
              run.checkpointer.request_stop("SIGTERM");
            }
            if (run.checkpointer.tick()) break;
          }
        }
        if (run.checkpointer.tick() || run.source.step() == 12) break;
        run.step();
      }
      std::string state = digest(run);
      if (run.checkpointer.finish() == 0) return state;
    }
  };
  CapturedLog log;
  const std::string straight = run_all(-1);
  EXPECT_EQ(run_all(4), straight);
  EXPECT_EQ(run_all(8), straight);
}

TEST(EvaluationScope, NothingIsWrittenTwice) {
  Volume volume;
  CapturedLog log;
  Attempt run(volume.options());
  run.train_to(4);
  StepReport report = run.source.train();
  report.evaluation_due = true;
  run.checkpointer.after_step(report);
  ASSERT_EQ(run.checkpointer.save().wait(), SaveStatus::durable);
  const auto before = volume.checkpoints();
  {
    const Checkpointer::EvaluationScope scope(run.checkpointer);
    run.source.evaluate();
    run.checkpointer.request_stop("SIGTERM");
    EXPECT_TRUE(run.checkpointer.tick());
  }
  EXPECT_EQ(run.checkpointer.finish(), 75);
  EXPECT_EQ(volume.checkpoints(), before);
  EXPECT_EQ(run.checkpointer.last_durable().step, 5);
  EXPECT_TRUE(Attempt(volume.options()).resumed.evaluation_due);
}

TEST(EvaluationScope, AFinishedEvaluationIsNotDueAgain) {
  Volume volume;
  CapturedLog log;
  std::string after;
  {
    Attempt run(volume.options());
    run.train_to(4);
    StepReport report = run.source.train();
    report.evaluation_due = true;
    run.checkpointer.after_step(report);
    {
      const Checkpointer::EvaluationScope scope(run.checkpointer);
      run.source.evaluate();
      EXPECT_FALSE(run.checkpointer.tick());
    }
    run.checkpointer.request_stop("SIGTERM");
    EXPECT_EQ(run.checkpointer.finish(), 75);
    after = digest(run);
  }
  Attempt next(volume.options());
  EXPECT_EQ(next.resumed.step, 5);
  EXPECT_FALSE(next.resumed.evaluation_due);
  EXPECT_EQ(digest(next), after);
}

TEST(EvaluationScope, ASaveInsideIsOfTheBoundary) {
  Volume volume;
  CapturedLog log;
  Attempt run(volume.options());
  run.train_to(4);
  const std::string boundary = digest(run);
  {
    const Checkpointer::EvaluationScope scope(run.checkpointer);
    run.source.evaluate();
    run.checkpointer.request_save();
    EXPECT_FALSE(run.checkpointer.tick());
    EXPECT_EQ(run.checkpointer.save().wait(), SaveStatus::durable);
  }
  run.train_to(6);
  Attempt other(volume.options());
  EXPECT_EQ(other.resumed.step, 4);
  EXPECT_TRUE(other.resumed.evaluation_due);
  EXPECT_EQ(digest(other), boundary);
}

TEST(EvaluationScope, AWriteInFlightThatFailsIsMadeGoodFromTheBoundary) {
  Volume volume;
  CapturedLog log;
  Attempt run(volume.options());
  run.train_to(4);
  const std::string boundary = digest(run);
  Gate gate;
  volume.faults.set_hook([&](const Operation& operation) {
    if (operation.kind == Op::sync_file && operation.path.find("step-") != std::string::npos) gate.pass();
  });
  volume.faults.fail(Op::sync_file, 1, EIO);
  run.checkpointer.save();
  gate.await_arrival();
  {
    const Checkpointer::EvaluationScope scope(run.checkpointer);
    run.source.evaluate();
    run.checkpointer.request_stop("SIGTERM");
    EXPECT_TRUE(run.checkpointer.tick());
  }
  gate.open();
  EXPECT_EQ(run.checkpointer.finish(), 75);
  EXPECT_EQ(digest(run), boundary);
  Attempt next(volume.options());
  EXPECT_EQ(next.resumed.step, 4);
  EXPECT_EQ(digest(next), boundary);
}

// Averaged weights are in the model's place while it is evaluated.
TEST(EvaluationScope, AStopInsideCommitsTheWeightsOfTheBoundary) {
  for (const bool announced : {false, true}) {
    Volume volume;
    {
      Attempt run(volume.options({SaveEvery::steps(2)}));
      for (int i = 0; i < 2; ++i) {
        if (announced) run.checkpointer.before_update();
        run.step();
      }
      const Checkpointer::EvaluationScope scope(run.checkpointer);
      for (std::size_t i = 0; i < 1000; ++i) run.source.weight(i) = 7;
      run.checkpointer.request_stop("test");
      EXPECT_TRUE(run.checkpointer.tick());
      EXPECT_EQ(run.checkpointer.finish(), 75);
    }
    Attempt next(volume.options());
    EXPECT_EQ(next.resumed.step, 2);
    EXPECT_EQ(next.state(), state_after(2));
  }
}

TEST(EvaluationScope, WithoutAnImageAStopInsideCommitsNothing) {
  Volume volume;
  CapturedLog log;
  {
    Attempt run(volume.options());
    run.train_to(2);
    EXPECT_EQ(run.checkpointer.save().wait(), SaveStatus::durable);
    run.step();
    bool fails = true;
    run.source.on_copy = [&fails] {
      if (std::exchange(fails, false)) throw Error("planted");
    };
    {
      const Checkpointer::EvaluationScope scope(run.checkpointer);
      run.source.evaluate();
      EXPECT_EQ(run.checkpointer.save().wait(), SaveStatus::failed);
      run.checkpointer.request_stop("test");
      EXPECT_TRUE(run.checkpointer.tick());
    }
    EXPECT_EQ(run.checkpointer.finish(), 75);
  }
  Attempt next(volume.options());
  EXPECT_EQ(next.resumed.step, 2);
  EXPECT_EQ(next.state(), state_after(2));
}

TEST(EvaluationScope, GoingOnAfterwardsDropsTheBoundary) {
  const std::string straight = state_after(9);
  Volume volume;
  CapturedLog log;
  Attempt run(volume.options());
  run.train_to(4);
  {
    const Checkpointer::EvaluationScope scope(run.checkpointer);
    run.checkpointer.request_stop("SIGTERM");
    EXPECT_TRUE(run.checkpointer.tick());
  }
  while (run.source.step() < 9) run.step();  // a loop that is slow to stop
  EXPECT_EQ(run.checkpointer.finish(), 75);
  EXPECT_EQ(run.checkpointer.last_durable().step, 9);
  EXPECT_EQ(digest(run), straight);
}

TEST(EvaluationScope, ScopesDoNotNest) {
  Volume volume;
  CapturedLog log;
  Attempt run(volume.options());
  const Checkpointer::EvaluationScope scope(run.checkpointer);
  EXPECT_THROW(Checkpointer::EvaluationScope(run.checkpointer), UsageError);
}

}}  // namespace holdfast::test
