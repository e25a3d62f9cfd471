// The fake itself: what a crash leaves, and what faults do. The store's proofs stand on it.
#include "support/memory_file_system.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "holdfast/base/error.h"
#include "support/fault_file_system.h"

namespace holdfast::test { namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

class Crash : public testing::Test {
 public:
  MemoryFileSystem disk;
  std::unique_ptr<Directory> dir = disk.open_directory("/run", true);
};

TEST_F(Crash, AFileNeedsItsDataAndItsName) {
  const auto file = dir->open("a", OpenMode::create);
  file->write_at(bytes_of("text"), 0);
  EXPECT_FALSE(disk.crash().exists("/run/a"));
  EXPECT_EQ(disk.copy().get_text("/run/a"), "text");
  dir->sync();
  EXPECT_EQ(disk.crash().get_text("/run/a"), "") << "the name without its data";
  file->sync();
  EXPECT_EQ(disk.crash().get_text("/run/a"), "text");
  file->write_at(bytes_of("TE"), 0);
  EXPECT_EQ(disk.crash().get_text("/run/a"), "text");
}

TEST_F(Crash, DataAloneHasNoName) {
  const auto file = dir->open("a", OpenMode::create);
  file->write_at(bytes_of("text"), 0);
  file->sync();
  EXPECT_FALSE(disk.crash().exists("/run/a"));
}

TEST_F(Crash, RenamesAndUnlinksWaitForTheDirectory) {
  disk.put("/run/a", "text");
  disk.put("/run/b", "other");
  dir->rename_new("a", "c");
  dir->unlink("b");
  EXPECT_EQ(disk.names("/run"), std::vector<std::string>{"c"});
  EXPECT_EQ(disk.crash().names("/run"), (std::vector<std::string>{"a", "b"}));
  dir->sync();
  EXPECT_EQ(disk.crash().names("/run"), std::vector<std::string>{"c"});
  EXPECT_EQ(disk.crash().get_text("/run/c"), "text");
}

TEST_F(Crash, NewDirectoriesToo) {
  const auto inner = dir->open_directory("d", true);
  inner->open("a", OpenMode::create)->sync();
  inner->sync();
  EXPECT_FALSE(disk.crash().exists("/run/d"));
  dir->sync();
  EXPECT_TRUE(disk.crash().exists("/run/d/a"));
}

TEST_F(Crash, OneHistoryCanBeCutManyTimes) {
  const auto file = dir->open("a", OpenMode::create);
  file->write_at(bytes_of("one"), 0);
  file->sync();
  dir->sync();
  MemoryFileSystem early = disk.crash();
  file->write_at(bytes_of("two"), 0);
  file->sync();
  early.open_directory("/run", false)->unlink("a");
  EXPECT_EQ(disk.crash().get_text("/run/a"), "two");
  EXPECT_FALSE(early.exists("/run/a"));
  EXPECT_EQ(early.open_handles(), 0);
  EXPECT_EQ(disk.open_handles(), 2);
}

TEST_F(Crash, AFullDiskSaysSoEarly) {
  disk.set_capacity(10);
  const auto file = dir->open("a", OpenMode::create);
  EXPECT_THROW(file->reserve(11), IoError);
  file->reserve(10);
  EXPECT_THROW(dir->open("b", OpenMode::create)->write_at(bytes_of("x"), 0), IoError);
  dir->unlink("a");
  EXPECT_NO_THROW(dir->open("c", OpenMode::create)->write_at(bytes_of("0123456789"), 0));
}

TEST_F(Crash, DirectFilesWantAlignment) {
  const auto file = dir->open("a", OpenMode::create_direct);
  EXPECT_THROW(file->write_at(bytes_of("text"), 0), IoError);
}

TEST_F(Crash, VolumesComeAndGo) {
  disk.mount("/mnt/v");
  disk.put("/mnt/v/a", "text");
  disk.unmount("/mnt/v");
  EXPECT_FALSE(disk.is_mount_point("/mnt/v"));
  EXPECT_TRUE(disk.on_root_file_system("/mnt/v/a"));
  EXPECT_FALSE(disk.exists("/mnt/v/a"));
  disk.mount("/mnt/v");
  EXPECT_EQ(disk.get_text("/mnt/v/a"), "text");
  EXPECT_FALSE(disk.on_root_file_system("/mnt/v/a"));
}

class Faults : public Crash {
 public:
  FaultFileSystem faults{disk};
  std::unique_ptr<Directory> watched = faults.open_directory("/run", false);
};

TEST_F(Faults, TheNthMutationFailsOnce) {
  faults.fail_mutation(2, EIO);
  const auto file = watched->open("a", OpenMode::create);
  EXPECT_THROW(file->write_at(bytes_of("x"), 0), IoError);
  EXPECT_EQ(faults.faults_fired(), 1);
  file->write_at(bytes_of("y"), 0);
  EXPECT_EQ(disk.get_text("/run/a"), "y");
}

TEST_F(Faults, OrForEver) {
  faults.fail(Op::write, 2, ENOSPC, {.for_ever = true});
  const auto file = watched->open("a", OpenMode::create);
  file->write_at(bytes_of("x"), 0);
  EXPECT_THROW(file->write_at(bytes_of("y"), 1), IoError);
  EXPECT_THROW(file->write_at(bytes_of("y"), 1), IoError);
  faults.clear_faults();
  file->write_at(bytes_of("y"), 1);
  EXPECT_EQ(faults.faults_fired(), 2);
}

TEST_F(Faults, AFailedSyncLosesTheDataAndTheNextOneSucceeds) {
  const auto file = watched->open("a", OpenMode::create);
  file->write_at(bytes_of("kept"), 0);
  file->sync();
  file->write_at(bytes_of("lost"), 4);
  watched->sync();
  faults.fail(Op::sync_file, 1, EIO);
  EXPECT_THROW(file->sync(), IoError);
  EXPECT_NO_THROW(file->sync());
  EXPECT_EQ(disk.crash().get_text("/run/a"), std::string("kept\0\0\0\0", 8));
}

TEST_F(Faults, ShortWritesAndFaultsAfterTheFact) {
  const auto file = watched->open("a", OpenMode::create);
  faults.fail(Op::write, 1, ENOSPC, {.short_write = true});
  EXPECT_THROW(file->write_at(bytes_of("12345678"), 0), IoError);
  EXPECT_EQ(disk.get_text("/run/a"), "1234");
  faults.fail(Op::rename_new, 1, EIO, {.after = true});
  EXPECT_THROW(watched->rename_new("a", "b"), IoError);
  EXPECT_EQ(disk.names("/run"), std::vector<std::string>{"b"});
}

TEST_F(Faults, TheHookActsInBetweenAndIsNotCounted) {
  disk.put("/run/a", "mine");
  faults.set_hook([&](const Operation& operation) {
    if (operation.kind != Op::rename_new) return;
    const auto rival = watched->open("b", OpenMode::create);
    rival->write_at(bytes_of("rival"), 0);
  });
  EXPECT_FALSE(watched->rename_new("a", "b"));
  EXPECT_EQ(disk.get_text("/run/b"), "rival");
  EXPECT_EQ(faults.mutations(), std::vector<std::string>{"rename_new /run/a -> b"});
}

TEST_F(Faults, TheLogTellsTheWholeStory) {
  const auto file = watched->open("a", OpenMode::create_direct);
  file->reserve(4096);
  file->sync();
  file->close();
  watched->list();
  watched->unlink("a");
  watched->sync();
  EXPECT_EQ(faults.mutations(),
            (std::vector<std::string>{"create /run/a", "reserve /run/a", "fsync /run/a", "close /run/a",
                                      "unlink /run/a", "fsync_directory /run"}));
  EXPECT_EQ(faults.mutation_count(), 6);
  EXPECT_EQ(faults.count(Op::list), 1);
}

}}  // namespace holdfast::test
