// Whose the run directory is, and which volume it lies on, as a run's start asks.
#include <unistd.h>

#include "rig.h"

namespace holdfast::test { namespace {

using testing::HasSubstr;

TEST(ForeignDirectory, IsRefusedUnlessTrusted) {
  Volume volume;
  {
    Attempt first(volume.options());
    first.train_to(3);
    first.checkpointer.finish();
  }
  volume.disk.give(kRun, geteuid(), getegid(), 0777);
  MemorySource source;
  Checkpointer checkpointer(source, volume.options());
  try {
    checkpointer.resume();
    FAIL() << "it goes on from what anybody may have put there";
  } catch (const RefusedError& error) {
    EXPECT_THAT(error.what(), HasSubstr("CheckpointerOptions::start.trust_directory"));
  }
  EXPECT_FALSE(volume.disk.exists(volume.path("attempts/2")));
  CheckpointerOptions options = volume.options();
  options.start.trust_directory = true;
  EXPECT_EQ(Attempt(options).resumed.step, 3);
}

// Between the last look at the mount point and the making of the directory.
TEST(VanishingMount, ARunIsNotPutOnTheDiskBeneath) {
  for (const bool comes_back : {false, true}) {
    Volume volume;
    volume.faults.set_hook([&](const Operation& operation) {
      if (operation.kind != Op::open_directory || !operation.mutating) return;
      if (operation.path == kRun) {
        volume.disk.unmount("/vol");
      } else if (comes_back) {
        volume.disk.mount("/vol");
      }
    });
    MemorySource source;
    Checkpointer checkpointer(source, volume.options());
    try {
      checkpointer.resume();
      FAIL() << "the run lies on the root disk";
    } catch (const IoError& error) {
      EXPECT_EQ(error.code(), ENODEV);
      EXPECT_THAT(error.what(), HasSubstr("the volume went away during the start"));
    }
    volume.faults.set_hook({});
    volume.disk.unmount("/vol");
    EXPECT_FALSE(volume.disk.exists(volume.path("attempts/1")));
  }
}

TEST(VanishingMount, AVolumeMountedBelowIsFine) {
  Volume volume;
  volume.disk.mount(kRun);
  EXPECT_NO_THROW(Attempt(volume.options()));
}

}}  // namespace holdfast::test
