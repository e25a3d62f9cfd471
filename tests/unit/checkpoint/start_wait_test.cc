// A start waits for what it needs, ends if it is told to stop meanwhile, and then nothing was begun.
#include "holdfast/checkpoint/internal/start/start_wait.h"

#include <cerrno>
#include <cstdlib>

#include "rig.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using internal::StartWait;
using testing::HasSubstr;

// A service that has not answered yet.
class SilentService final : public Source {
 public:
  std::string_view name() const override { return "ec2"; }
  std::vector<Notice> poll() override { return {}; }
  Duration interval() const override { return 1h; }
  bool may_block() const override { return true; }
};

class StartWaitTest : public testing::Test {
 protected:
  StartWaitTest() {
    options.notices.exit_code_interrupted = 99;
    options.start.mount_wait = 60s;
  }
  internal::Run& run() {
    if (!made) made.emplace(source, options);
    return *made;
  }
  void stop() { run().monitor.post({.source = "test", .kind = NoticeKind::stop, .text = "SIGTERM"}); }
  // That the work is interrupted, with the code for it, and that nothing was made.
  template <class Work>
  void expect_interrupted(const Work& work, const char* where) {
    try {
      work();
      ADD_FAILURE() << "it went on";
    } catch (const Error& error) {
      EXPECT_EQ(static_cast<int>(error.exit_code()), 99) << error.what();
      EXPECT_THAT(error.what(), HasSubstr("interrupted (SIGTERM)"));
      EXPECT_THAT(error.what(), HasSubstr(where));
    }
    EXPECT_FALSE(volume.disk.exists(kRun));
  }

  Volume volume;
  CapturedLog log;
  CheckpointerOptions options = volume.options();
  MemorySource source;
  std::optional<internal::Run> made;
};

TEST_F(StartWaitTest, ASourceThatNobodyKnowsIsAnErrorAtOnce) {
  setenv("HOLDFAST_REQUIRE_SOURCE", "ec3", 1);
  EXPECT_THROW(StartWait{run()}, UsageError);
  unsetenv("HOLDFAST_REQUIRE_SOURCE");
}

TEST_F(StartWaitTest, AStopEndsTheWaitForARequiredSource) {
  options.notices.require_sources = {"ec2"};
  run().monitor.add(std::make_unique<SilentService>());
  stop();
  StartWait wait(run());
  expect_interrupted([&] { wait.await_sight(); }, "before the run began");
}

TEST_F(StartWaitTest, WithoutARequiredSourceAStopIsLeftToTheTraining) {
  stop();
  EXPECT_NO_THROW(StartWait(run()).await_sight());
}

TEST_F(StartWaitTest, AVolumeThatComesLateIsWaitedFor) {
  volume.disk.unmount("/vol");
  volume.clock.plan(45s, [&] { volume.disk.mount("/vol"); });
  StartWait wait(run());
  EXPECT_NO_THROW(wait.await_volume());
  EXPECT_GE(volume.clock.slept(), 45s);
  EXPECT_NO_THROW(wait.check_mounted());
}

TEST_F(StartWaitTest, AVolumeThatNeverComesIsAnErrorOfTheVolume) {
  volume.disk.unmount("/vol");
  try {
    StartWait(run()).await_volume();
    ADD_FAILURE() << "it went on";
  } catch (const IoError& error) {
    EXPECT_EQ(error.code(), ENODEV);
    EXPECT_EQ(error.exit_code(), ExitCode::io_failed);
    EXPECT_THAT(error.what(), HasSubstr("/vol"));
  }
  EXPECT_GE(volume.clock.slept(), 60s);
  EXPECT_LT(volume.clock.slept(), 70s);
}

TEST_F(StartWaitTest, AStopEndsTheWaitForTheVolume) {
  volume.disk.unmount("/vol");
  volume.clock.plan(10s, [&] { stop(); });
  StartWait wait(run());
  expect_interrupted([&] { wait.await_volume(); }, "while waiting for /vol");
  EXPECT_LT(volume.clock.slept(), 20s);
}

TEST_F(StartWaitTest, AVolumeThatGoesAgainIsNeverReplacedByTheRootDisk) {
  StartWait wait(run());
  wait.await_volume();
  volume.disk.unmount("/vol");
  try {
    wait.check_mounted();
    ADD_FAILURE() << "it went on";
  } catch (const IoError& error) {
    EXPECT_EQ(error.code(), ENODEV);
  }
}

TEST_F(StartWaitTest, WithoutAMountTheRootDiskGetsAWarning) {
  options.mount.clear();
  volume.disk.unmount("/vol");
  StartWait wait(run());
  EXPECT_NO_THROW(wait.await_volume());
  EXPECT_NO_THROW(wait.check_mounted());
  EXPECT_THAT(log.text(), HasSubstr("root"));
  EXPECT_EQ(volume.clock.slept(), 0s);
}

TEST_F(StartWaitTest, AStopEndsTheWaitForHome) {
  options.start.home = "/efs/run";
  volume.faults.set_hook([](const Operation& operation) {
    if (operation.path.starts_with("/efs")) throw IoError("open", operation.path, EIO);
  });
  volume.clock.plan(10s, [&] { stop(); });
  StartWait wait(run());
  expect_interrupted([&] { wait.await_home(); }, "while the start waited for /efs/run");
  EXPECT_LT(volume.clock.slept(), 60s);
}

TEST_F(StartWaitTest, WithoutAHomeThereIsNothingToWaitFor) {
  const int before = volume.faults.count(Op::open_directory);
  StartWait(run()).await_home();
  EXPECT_EQ(volume.faults.count(Op::open_directory), before);
}

}}  // namespace holdfast::test
