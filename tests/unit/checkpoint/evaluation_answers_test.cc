// A commit inside an evaluation answers the requests that came there, unless it fails.
#include "noticed.h"

namespace holdfast::test { namespace {

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
