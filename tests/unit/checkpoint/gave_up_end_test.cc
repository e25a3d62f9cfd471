// A run that gave up saving has failed (74), also if it ends inside an update.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "noticed.h"

namespace holdfast::test { namespace {

using testing::StartsWith;

TEST(GaveUpEnd, ARunThatGaveUpSavingHasFailedAlsoInsideAnUpdate) {
  Volume volume;
  CapturedLog log;
  CheckpointerOptions options = volume.options({SaveEvery::steps(1)});
  options.writing.give_up_unsaved = 10min;
  Attempt run(options);
  run.train_to(1);
  volume.faults.fail(Op::sync_file, 1, EIO, {.for_ever = true});
  while (!run.decision.stop) {
    volume.clock.advance(1min);
    run.step();
    if (run.decision.saved) run.decision.save.wait();
  }
  run.checkpointer.before_update();
  EXPECT_EQ(run.checkpointer.finish(), 74);
  EXPECT_EQ(run.checkpointer.last_durable().step, 1);
  EXPECT_THAT(run.checkpointer.stop_reason(), StartsWith("no save has succeeded for"));
}

}}  // namespace holdfast::test
