// What finish() and saves between two steps store is what after_step() left, whatever the program has changed
// since: where an epoch ends, and where the loop ends.
#include "rig.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;

class HeldBoundary : public testing::Test {
 protected:
  // The newest checkpoint is that step's, as an uninterrupted run has it.
  void expect_newest(std::int64_t step) {
    Attempt next(volume.options());
    EXPECT_EQ(next.resumed.step, step);
    EXPECT_EQ(next.state(), state_after(step));
  }
  // The next step ends an epoch, or everything.
  static void end_with(Attempt& run, DataEnd end) {
    run.source.end = end;
    run.step();
    run.source.end = DataEnd::none;
  }
  static void work_on(Attempt& run) {
    run.source.weight(0) = 7;
    run.source.evaluate();
  }

  Volume volume;
  CapturedLog log;
};

TEST_F(HeldBoundary, IsWhatFinishStoresAtTheLastStep) {
  {
    Attempt run(volume.options());
    run.checkpointer.expect_last_step(5);
    run.train_to(5);
    work_on(run);
    run.source.changes = {"optimizer.group.0.now.lr", "model/weight"};
    EXPECT_EQ(run.checkpointer.finish(), 0);
    EXPECT_EQ(run.state(), state_after(5)) << "its own digest is the boundary's, too";
  }
  expect_newest(5);
  EXPECT_THAT(log.text(),
              HasSubstr("step 5 is stored as after_step() left it, without what has changed since: "
                        "optimizer.group.0.now.lr, model/weight."));
}

TEST_F(HeldBoundary, IsWhatFinishStoresAtAnEpochsEnd) {
  for (const DataEnd end : {DataEnd::epoch, DataEnd::run}) {
    const std::int64_t before = Attempt(volume.options()).source.step();
    {
      Attempt run(volume.options());
      run.step();
      end_with(run, end);
      work_on(run);
      EXPECT_EQ(run.checkpointer.finish(), 0);
    }
    expect_newest(before + 2);
  }
  EXPECT_THAT(log.text(), Not(HasSubstr("changed since"))) << "nothing to name";
}

TEST_F(HeldBoundary, IsWhatSavesAndEvaluationsStore) {
  {
    Attempt run(volume.options());
    end_with(run, DataEnd::epoch);
    work_on(run);
    EXPECT_EQ(run.checkpointer.save().wait(), SaveStatus::durable);
  }
  expect_newest(1);
  {
    Attempt run(volume.options());
    end_with(run, DataEnd::epoch);
    work_on(run);
    {
      const Checkpointer::EvaluationScope scope(run.checkpointer);
      run.checkpointer.request_stop("told to");
      EXPECT_TRUE(run.checkpointer.tick());
    }
    EXPECT_EQ(run.checkpointer.finish(), 75);
  }
  Attempt next(volume.options());
  EXPECT_EQ(next.resumed.step, 2);
  EXPECT_TRUE(next.resumed.evaluation_due);
  EXPECT_EQ(next.state(), state_after(2));
}

TEST_F(HeldBoundary, IsWhatASecondTryOfTheLastSaveStores) {
  {
    Attempt run(volume.options());
    run.step();
    int writes = 0;
    volume.faults.set_hook([&](const Operation& operation) {
      const bool begins = operation.kind == Op::create && operation.path.find("step-") != std::string::npos;
      if (begins && writes++ == 0) throw Error("planted", ExitCode::io_failed);
    });
    run.checkpointer.request_stop("told to");
    ASSERT_TRUE(run.step().stop);
    run.decision.save.wait();
    work_on(run);
    EXPECT_EQ(run.checkpointer.finish(), 75);
    volume.faults.set_hook({});
  }
  expect_newest(2);
}

TEST_F(HeldBoundary, EndsWithTheNextStep) {
  {
    Attempt run(volume.options());
    end_with(run, DataEnd::epoch);
    run.step();
    EXPECT_EQ(run.checkpointer.save().wait(), SaveStatus::durable);
    EXPECT_EQ(run.checkpointer.save().step(), 2);
  }
  expect_newest(2);
}

// One copy of the state for each epoch, unless epochs are so short that it would cost more than they may.
TEST_F(HeldBoundary, CostsAtMostAHundredthOfTheTime) {
  Attempt run(volume.options());
  run.step();  // lays the file out
  run.source.on_copy = [&] { volume.clock.advance(1s); };
  end_with(run, DataEnd::epoch);
  const std::int64_t copies = run.source.copies;
  volume.clock.advance(90s);
  end_with(run, DataEnd::epoch);
  EXPECT_EQ(run.source.copies, copies) << "too soon";
  volume.clock.advance(20s);
  end_with(run, DataEnd::epoch);
  EXPECT_EQ(run.source.copies, copies + 1);
  end_with(run, DataEnd::run);
  EXPECT_EQ(run.source.copies, copies + 2) << "the last one is always kept";
  run.checkpointer.finish();
  EXPECT_EQ(run.source.copies, copies + 2) << "and finish() needs no other";
}

// Where nobody knows that a step is the last, finish() takes memory. Who goes on from there learns it.
TEST_F(HeldBoundary, UnknownEndsAreTold) {
  {
    Attempt run(volume.options());
    run.train_to(3);
    EXPECT_EQ(run.checkpointer.finish(), 0);
  }
  Attempt next(volume.options());
  next.train_to(4);
  EXPECT_EQ(next.checkpointer.finish(), 0);
  EXPECT_THAT(log.text(),
              HasSubstr("this run goes on from step 3, which finish() stored as it found the state"));
}

}}  // namespace holdfast::test
