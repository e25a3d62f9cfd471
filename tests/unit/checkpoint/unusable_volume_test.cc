// A volume on which no commit can work is refused by resume(), not by the first save.
#include <cerrno>

#include "holdfast/store/run_state.h"
#include "rig.h"

namespace holdfast::test { namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(UnusableVolume, NoRenameWithoutReplacingIsRefusedBeforeTheFirstStep) {
  Volume volume;
  volume.faults.fail(Op::rename_new, 1, EINVAL, {.for_ever = true});
  MemorySource source;
  Checkpointer checkpointer(source, volume.options());
  try {
    checkpointer.resume();
    FAIL() << "the run began";
  } catch (const RefusedError& error) {
    EXPECT_THAT(error.what(), HasSubstr("/vol/run cannot hold checkpoints: rename_new"));
  }
  EXPECT_THAT(volume.disk.names(kRun),
              testing::UnorderedElementsAre("RUN_STATE.json", "attempts", "ledger-a0001.jsonl"));
  const auto state = read_run_state(*volume.disk.open_directory(kRun, false));
  ASSERT_TRUE(state);
  EXPECT_EQ(state->phase, RunPhase::failed);
  EXPECT_EQ(state->exit_code, 78);
}

TEST(UnusableVolume, OneThatHoldsACheckpointIsTriedAgainLater) {
  Volume volume;
  {
    Attempt first(volume.options());
    first.train_to(3);
    first.checkpointer.finish();
  }
  volume.faults.fail(Op::rename_new, 1, EPERM, {.for_ever = true});
  MemorySource source;
  Checkpointer checkpointer(source, volume.options());
  EXPECT_THROW(checkpointer.resume(), IoError);
  const auto state = read_run_state(*volume.disk.open_directory(kRun, false));
  ASSERT_TRUE(state);
  EXPECT_EQ(state->exit_code, 74);
  volume.faults.clear_faults();
  EXPECT_EQ(Attempt(volume.options()).resumed.step, 3);
}

TEST(UnusableVolume, AFullOneIsWarnedOfAndGetsTheFirstSaveThatFits) {
  Volume volume;
  volume.faults.fail(Op::reserve, 1, ENOSPC);
  testing::internal::CaptureStderr();
  Attempt attempt(volume.options({SaveEvery::steps(1)}));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("no checkpoint can be written now"));
  attempt.train_to(1);
  EXPECT_EQ(attempt.checkpointer.finish(), 0);
  EXPECT_THAT(volume.checkpoints(), ElementsAre("step-000000000001-a0001.h5"));
}

}}  // namespace holdfast::test
