// The real Checkpointer on real volumes in trouble: full, out of inodes, read-only, with sectors
// of 4096 bytes. A save that fails is said, training goes on, and saves work again as soon as the volume
// does.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/checkpoint/checkpointer.h"
#include "support/loop_volume.h"
#include "support/memory_source.h"

namespace holdfast::test { namespace {

using testing::HasSubstr;

constexpr MemorySource::Options kState = {.elements = 200'000};  // 1.6 MB with its momentum, 2.2 MB a file

// One process life of a run that saves at every step.
struct Life {
  MemorySource source{kState};
  Checkpointer checkpointer;
  Resumed resumed;

  explicit Life(const LoopVolume& volume)
      : checkpointer(source, {.directory = volume.path() / "run",
                              .mount = volume.path(),
                              .every = {SaveEvery::steps(1)},
                              .keep = KeepLast{2},
                              .notices = {.hear_signals = false}}),
        resumed(checkpointer.resume()) {}

  // A step whose save is waited for; what failed, or "".
  std::string step() {
    const Decision decision = checkpointer.after_step(source.train());
    EXPECT_FALSE(decision.stop) << decision.reason;
    const SaveHandle save = checkpointer.save();
    return save.wait() == SaveStatus::durable ? "" : save.error();
  }
  std::int64_t durable() { return checkpointer.last_durable().step; }
};

// The next life starts where the last acknowledged step was, with the state of the undisturbed run.
void expect_whole(const LoopVolume& volume, std::int64_t step) {
  Life life(volume);
  EXPECT_EQ(life.resumed.step, step);
  MemorySource undisturbed(kState);
  while (undisturbed.step() < step) undisturbed.advance(undisturbed.train());
  for (std::size_t i = 0; i < kState.elements; ++i) {
    ASSERT_EQ(life.source.weight(i), undisturbed.weight(i)) << i;
  }
}

int situations = 0;

class Count : public testing::Environment {
  void TearDown() override {
    if (situations > 0) std::printf("real volumes: %d situations\n", situations);
  }
};
const auto* const count = testing::AddGlobalTestEnvironment(new Count);  // googletest owns it

class RealVolumes : public testing::TestWithParam<VolumeKind> {
 protected:
  void SetUp() override {
    const std::string why_not = LoopVolume::why_not(GetParam());
    if (!why_not.empty()) GTEST_SKIP() << name_of(GetParam()) << ": " << why_not;
    ++situations;
  }
};

TEST_P(RealVolumes, AFullOneCostsSavesAndNothingElse) {
  LoopVolume volume({.kind = GetParam()});
  Life life(volume);
  ASSERT_EQ(life.step(), "");
  {
    const Ballast ballast(volume.path());
    for (int i = 0; i < 3; ++i) {
      EXPECT_THAT(life.step(), HasSubstr("No space left on device"));
      EXPECT_EQ(life.durable(), 1);
    }
    const Decision decision = life.checkpointer.after_step(life.source.train());
    EXPECT_THAT(decision.failure.value_or(""), HasSubstr("No space left"));
    EXPECT_FALSE(decision.stop);
  }
  EXPECT_EQ(life.step(), "");
  EXPECT_FALSE(life.checkpointer.after_step(life.source.train()).failure);
  EXPECT_EQ(life.checkpointer.finish(), 0);
  expect_whole(volume, life.source.step());
}

// Room for a file, but not for one beside the two that must stay.
TEST_P(RealVolumes, OneThatIsTooSmallKeepsWhatItHas) {
  LoopVolume volume({.kind = GetParam()});
  Life life(volume);
  ASSERT_EQ(life.step(), "");
  ASSERT_EQ(life.step(), "");
  const Ballast ballast(volume.path(), 1 << 20);
  EXPECT_THAT(life.step(), HasSubstr("No space left on device"));
  EXPECT_EQ(life.checkpointer.finish(), 74);
  expect_whole(volume, 2);
}

TEST_P(RealVolumes, AStartOnAFullOneSaysSoOrGoesOn) {
  LoopVolume volume({.kind = GetParam()});
  {
    Life life(volume);
    ASSERT_EQ(life.step(), "");
  }
  {
    const Ballast ballast(volume.path());
    try {
      Life life(volume);
      EXPECT_EQ(life.resumed.step, 1);
      EXPECT_THAT(life.step(), HasSubstr("No space left on device"));
    } catch (const IoError& error) {
      EXPECT_EQ(error.code(), ENOSPC) << error.what();
    }
  }
  expect_whole(volume, 1);
}

TEST_P(RealVolumes, AReadOnlyOneIsRefusedUntouched) {
  LoopVolume volume({.kind = GetParam()});
  {
    Life life(volume);
    ASSERT_EQ(life.step(), "");
  }
  volume.remount("ro");
  try {
    Life life(volume);
    ADD_FAILURE() << "started on a read-only volume";
  } catch (const IoError& error) {
    EXPECT_EQ(error.code(), EROFS) << error.what();
    EXPECT_EQ(static_cast<int>(error.exit_code()), 74);
  }
  volume.remount("");
  expect_whole(volume, 1);
}

TEST_P(RealVolumes, Sectors4096TakeDirectWrites) {
  LoopVolume volume({.kind = GetParam(), .sector = 4096});
  const std::string name = std::filesystem::path(volume.device()).filename().native();
  ASSERT_EQ(read_text("/sys/block/" + name + "/queue/logical_block_size"), "4096\n");
  {
    Life life(volume);
    for (int i = 0; i < 4; ++i) ASSERT_EQ(life.step(), "");
    // What went through the page cache would still be there.
    const auto file = volume.path() / "run" / life.checkpointer.last_durable().checkpoint;
    const std::size_t size = std::filesystem::file_size(file);
    const int fd = open(file.c_str(), O_RDONLY | O_CLOEXEC);
    void* const memory = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
    ASSERT_NE(memory, MAP_FAILED);
    std::vector<unsigned char> pages(size / 4096 + 1);
    ASSERT_EQ(mincore(memory, size, pages.data()), 0);
    const auto cached =
        std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return page & 1; });
    EXPECT_LE(cached, 2) << "of " << pages.size() << " pages";
    munmap(memory, size);
    close(fd);
    EXPECT_EQ(life.checkpointer.finish(), 0);
  }
  volume.unmount();
  volume.mount();
  expect_whole(volume, 4);
}

TEST_P(RealVolumes, MountedWithDiscardDeletesAndGoesOn) {
  LoopVolume volume({.kind = GetParam(), .mount = "discard"});
  {
    Life life(volume);
    for (int i = 0; i < 60; ++i) ASSERT_EQ(life.step(), "");  // twice what the volume holds
  }
  volume.cut();
  volume.unmount();
  volume.mount("discard");
  expect_whole(volume, 60);
}

INSTANTIATE_TEST_SUITE_P(On, RealVolumes, testing::Values(VolumeKind::ext4, VolumeKind::xfs),
                         [](const auto& info) { return std::string(name_of(info.param)); });

class RealExt4 : public RealVolumes {};

TEST_P(RealExt4, NoInodesLeft) {
  LoopVolume volume({.mkfs = {"-N", "64"}});
  Life life(volume);
  ASSERT_EQ(life.step(), "");
  const auto many = volume.path() / "many";
  std::filesystem::create_directory(many);
  int made = 0;
  std::string failure;
  // The writer's last state file may give one back, after the first round.
  for (int round = 0; round < 10 && failure.empty(); ++round) {
    int fd = 0;
    while (fd >= 0) {
      fd = open((many / std::to_string(made++)).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
      if (fd >= 0) close(fd);
    }
    failure = life.step();
  }
  EXPECT_GT(made, 3);
  EXPECT_THAT(failure, HasSubstr("No space left on device"));
  std::filesystem::remove_all(many);
  EXPECT_EQ(life.step(), "");
  EXPECT_EQ(life.checkpointer.finish(), 0);
  expect_whole(volume, life.source.step());
}

// As after an error in its metadata: every write is refused from one moment to the next.
TEST_P(RealExt4, TurnsReadOnlyInTheMiddle) {
  LoopVolume volume({.mount = "errors=remount-ro"});
  {
    Life life(volume);
    ASSERT_EQ(life.step(), "");
    const std::string device = std::filesystem::path(volume.device()).filename().native();
    const std::string trigger = "/sys/fs/ext4/" + device + "/trigger_fs_error";
    if (access(trigger.c_str(), W_OK) != 0) GTEST_SKIP() << "no " << trigger;
    write_text(trigger, "planned\n");
    for (int i = 0; i < 3; ++i) {
      EXPECT_THAT(life.step(), testing::AnyOf(HasSubstr("Read-only file system"), HasSubstr("I/O error")));
      EXPECT_EQ(life.durable(), 1);
    }
    EXPECT_EQ(life.checkpointer.finish(), 74);
  }
  volume.unmount();
  volume.mount();
  expect_whole(volume, 1);
}

INSTANTIATE_TEST_SUITE_P(On, RealExt4, testing::Values(VolumeKind::ext4),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}}  // namespace holdfast::test
