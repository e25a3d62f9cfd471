// A commit inside an evaluation answers the requests that came there: none is served a second time.
#include "noticed.h"

namespace holdfast::test { namespace {

TEST_F(Noticed, ARequestThatAnEvaluationHasServedIsNotServedAgain) {
  start_measured();
  step();
  {
    const Checkpointer::EvaluationScope scope(run->checkpointer);
    run->checkpointer.request_save();
    EXPECT_TRUE(soon([&] { return durable() == 11; })) << "nothing ticks";
  }
  EXPECT_FALSE(step().saved);
  EXPECT_EQ(begun, 1);
}

TEST_F(Noticed, ARiskThatAnEvaluationHasServedOnlyShortensTheInterval) {
  options.every = {SaveEvery::steps(10)};
  start_measured();
  step();
  {
    const Checkpointer::EvaluationScope scope(run->checkpointer);
    announcer.risk();
    EXPECT_TRUE(soon([&] { return durable() == 11; }));
  }
  ASSERT_TRUE(steps_until([&] { return run->decision.saved; }));
  EXPECT_EQ(run->source.step(), 16) << "half of ten";
}

TEST_F(Noticed, ARequestWhoseSaveFailsInAnEvaluationIsServedAfterwards) {
  start_measured();
  step();
  {
    const Checkpointer::EvaluationScope scope(run->checkpointer);
    volume.faults.fail(Op::sync_file, 1, EIO, {.for_ever = true});
    run->checkpointer.request_save();
    EXPECT_TRUE(soon([&] { return run->checkpointer.figures().failed == 1; }));
    volume.faults.clear_faults();
  }
  EXPECT_TRUE(step().saved);
  EXPECT_EQ(durable(), 12);
}

}}  // namespace holdfast::test
