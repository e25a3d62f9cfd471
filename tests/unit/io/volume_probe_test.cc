#include "holdfast/io/volume_probe.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "holdfast/base/error.h"
#include "support/fake_clock.h"
#include "support/memory_file_system.h"

namespace holdfast { namespace {

using namespace std::chrono_literals;
using test::FakeClock;
using test::MemoryFileSystem;

TEST(WaitForMount, ReturnsAtOnceWhenItIsThere) {
  MemoryFileSystem fs;
  FakeClock clock;
  fs.mount("/mnt/ckpt");
  EXPECT_EQ(wait_for_mount(fs, clock, "/mnt/ckpt"), MountWait::mounted);
  EXPECT_EQ(clock.slept(), 0s);
}

TEST(WaitForMount, WaitsUntilItComes) {
  MemoryFileSystem fs;
  FakeClock clock;
  fs.open_directory("/mnt/ckpt", true);
  clock.plan(95s, [&] { fs.mount("/mnt/ckpt"); });
  EXPECT_EQ(wait_for_mount(fs, clock, "/mnt/ckpt"), MountWait::mounted);
  EXPECT_EQ(clock.slept(), 95s);
}

TEST(WaitForMount, GivesUpAtTheLimitExactly) {
  MemoryFileSystem fs;
  FakeClock clock;
  EXPECT_EQ(wait_for_mount(fs, clock, "/mnt/ckpt", {.limit = 90500ms}), MountWait::timed_out);
  EXPECT_EQ(clock.slept(), 90500ms);
  EXPECT_FALSE(fs.exists("/mnt")) << "never replaced by a folder on the root disk";
}

TEST(WaitForMount, AnInterruptionEndsIt) {
  MemoryFileSystem fs;
  FakeClock clock;
  const auto result =
      wait_for_mount(fs, clock, "/mnt/ckpt", {.go_on = [](Duration waited) { return waited < 5s; }});
  EXPECT_EQ(result, MountWait::stopped);
  EXPECT_EQ(clock.slept(), 5s);
}

TEST(CheckBeneathMount, TheDirectoryLiesOnIt) {
  EXPECT_NO_THROW(check_beneath_mount("/mnt/ckpt/run1", "/mnt/ckpt"));
  EXPECT_NO_THROW(check_beneath_mount("/mnt/ckpt", "/mnt/ckpt/"));
  EXPECT_THROW(check_beneath_mount("/mnt/ckpt2/run1", "/mnt/ckpt"), UsageError);
  EXPECT_THROW(check_beneath_mount("/mnt/ckpt/../other", "/mnt/ckpt"), UsageError);
  const std::filesystem::path folder = testing::TempDir() + "/holdfast-probe";
  std::filesystem::create_directories(folder / "volume");
  std::filesystem::create_directory_symlink(folder / "volume", folder / "alias");
  EXPECT_NO_THROW(check_beneath_mount(folder / "alias/run", folder / "volume"));
  std::filesystem::remove_all(folder);
}

TEST(RootFileSystem, WarnsOnlyThere) {
  MemoryFileSystem fs;
  fs.mount("/mnt/ckpt");
  EXPECT_EQ(root_file_system_warning(fs, "/mnt/ckpt/run1"), std::nullopt);
  const auto warning = root_file_system_warning(fs, "/home/run1");
  ASSERT_TRUE(warning);
  EXPECT_EQ(warning->rfind("/home/run1 lies on the root file system", 0), 0u);
}

}}  // namespace holdfast
