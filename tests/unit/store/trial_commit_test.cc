// Rule 14: a volume on which no commit can work is known before the first step, and a trial leaves nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "holdfast/base/error.h"
#include "support/fault_file_system.h"
#include "support/forwarding.h"
#include "support/store_life.h"

namespace holdfast::test { namespace {

using testing::ElementsAre;
using testing::HasSubstr;

enum class Lie { none, rename_replaces, create_opens, read_differs };

class LyingFile final : public ForwardingFile {
 public:
  using ForwardingFile::ForwardingFile;
  std::size_t read_uncached_at(std::span<std::byte> buffer, std::uint64_t offset) const override {
    const std::size_t read = ForwardingFile::read_uncached_at(buffer, offset);
    buffer[read / 2] ^= std::byte{1};
    return read;
  }
};

class LyingDirectory final : public ForwardingDirectory {
 public:
  LyingDirectory(std::unique_ptr<Directory> inner, Lie lie)
      : ForwardingDirectory(std::move(inner)), lie_(lie) {}
  std::unique_ptr<File> open(std::string_view name, OpenMode mode) override {
    auto file = ForwardingDirectory::open(name, mode);
    if (!file && lie_ == Lie::create_opens && mode == OpenMode::create) {
      unlink(name);
      file = ForwardingDirectory::open(name, mode);
    }
    return file && lie_ == Lie::read_differs ? std::make_unique<LyingFile>(std::move(file)) : std::move(file);
  }
  bool rename_new(std::string_view from, std::string_view to) override {
    if (lie_ != Lie::rename_replaces) return ForwardingDirectory::rename_new(from, to);
    rename_over(from, to);
    return true;
  }

 private:
  const Lie lie_;
};

class LyingFileSystem final : public ForwardingFileSystem {
 public:
  LyingFileSystem(MemoryFileSystem& disk, Lie lie) : ForwardingFileSystem(disk), lie_(lie) {}
  std::unique_ptr<Directory> open_directory(const std::filesystem::path& path, bool create) override {
    auto directory = ForwardingFileSystem::open_directory(path, create);
    return directory ? std::make_unique<LyingDirectory>(std::move(directory), lie_) : nullptr;
  }

 private:
  const Lie lie_;
};

std::string refusal(Life& life) {
  try {
    life.start();
  } catch (const RefusedError& error) {
    return error.what();
  }
  return "";
}

TEST(Rule14Trial, LeavesNothing) {
  MemoryFileSystem disk;
  FaultFileSystem files(disk);
  Life life(files);
  life.start_without_trial();
  const auto before = disk.names(kRun);
  files.clear_log();
  life.store.trial_commit();
  EXPECT_EQ(disk.names(kRun), before);
  EXPECT_EQ(files.count(Op::sync_file) + files.count(Op::sync_directory), 1) << "one fsync is its cost";
  for (const Operation& operation : files.log()) {
    if (!operation.mutating) continue;
    const auto name = std::filesystem::path(operation.path).filename().native();
    EXPECT_TRUE(parse_temporary_name(name)) << operation.text();
    EXPECT_TRUE(operation.to.empty() || parse_temporary_name(operation.to)) << operation.text();
  }
  EXPECT_EQ(life.save(100).step, 100);
}

TEST(Rule14Trial, ACallThatTheVolumeDoesNotHaveIsRefused) {
  for (const int code : {EINVAL, ENOSYS, EOPNOTSUPP, EPERM}) {
    MemoryFileSystem disk;
    FaultFileSystem files(disk);
    files.fail(Op::rename_new, 1, code, {.for_ever = true});
    Life life(files);
    EXPECT_THAT(refusal(life), testing::AllOf(HasSubstr("/volume/run cannot hold checkpoints: rename"),
                                              HasSubstr(strerrorname_np(code)), HasSubstr("another volume")));
    EXPECT_THAT(disk.names(kRun), ElementsAre("attempts"));
  }
}

// The claim has ended the attempt that trained: a server's hiccup must not end the run as well.
TEST(Rule14Trial, ACallThatFailsOnceIsNoVerdict) {
  for (const int code : {EINVAL, ENOSYS, EOPNOTSUPP, EPERM}) {
    for (const Op op : {Op::reserve, Op::write, Op::sync_file, Op::read, Op::close, Op::rename_new}) {
      MemoryFileSystem disk;
      FaultFileSystem files(disk);
      Life life(files);
      life.start_without_trial();
      files.fail(op, 1, code);
      EXPECT_NO_THROW(life.store.trial_commit()) << name_of(op) << " " << strerrorname_np(code);
      EXPECT_EQ(files.faults_fired(), 1);
      EXPECT_THAT(disk.names(kRun), ElementsAre("attempts"));
      EXPECT_NO_THROW(life.save(100));
    }
  }
}

TEST(Rule14Trial, TwoDifferentAnswersAreAnIoError) {
  for (const bool other_call : {false, true}) {
    MemoryFileSystem disk;
    FaultFileSystem files(disk);
    Life life(files);
    life.start_without_trial();
    files.fail(Op::rename_new, 1, EPERM);
    // The first trial writes once.
    files.fail(other_call ? Op::write : Op::rename_new, 2, other_call ? EPERM : EINVAL);
    EXPECT_THROW(life.store.trial_commit(), IoError);
    EXPECT_THAT(disk.names(kRun), ElementsAre("attempts"));
  }
}

TEST(Rule14Trial, WhereACheckpointLiesCommitsHaveWorked) {
  MemoryFileSystem disk;
  Life first(disk);
  first.start();
  first.save(100);
  FaultFileSystem files(disk);
  files.fail(Op::rename_new, 1, EPERM, {.for_ever = true});
  Life next(files);
  EXPECT_THROW(next.start(), IoError);
  files.clear_faults();
  EXPECT_EQ(Life(files).start().newest->step, 100);
}

TEST(Rule14Trial, AVolumeThatReplacesOrCreatesTwiceIsRefused) {
  for (const Lie lie : {Lie::rename_replaces, Lie::create_opens}) {
    MemoryFileSystem disk;
    LyingFileSystem files(disk, lie);
    Life life(files);
    EXPECT_THAT(refusal(life),
                HasSubstr(lie == Lie::create_opens ? "O_EXCL is ignored" : "has replaced one"));
    EXPECT_THAT(disk.names(kRun), ElementsAre("attempts"));
  }
}

TEST(Rule14Trial, WhatMayPassIsAnIoError) {
  for (const int code : {EIO, ESTALE, EROFS, EACCES}) {
    MemoryFileSystem disk;
    FaultFileSystem files(disk);
    Life life(files);
    life.start_without_trial();
    files.fail(Op::create, 1, code);
    EXPECT_THROW(life.store.trial_commit(), IoError) << strerrorname_np(code);
    EXPECT_NO_THROW(life.store.trial_commit());
    EXPECT_NO_THROW(life.save(100));
  }
  MemoryFileSystem disk;
  LyingFileSystem files(disk, Lie::read_differs);
  Life life(files);
  EXPECT_THROW(life.start(), IoError) << "the device may be sick";
}

TEST(Rule14Trial, ASuccessorSupersedesIt) {
  for (const Op op : {Op::create, Op::write, Op::sync_file, Op::rename_new}) {
    MemoryFileSystem disk;
    FaultFileSystem files(disk);
    Life life(files);
    life.start_without_trial();
    files.set_hook([&](const Operation& operation) {
      if (operation.kind != op) return;
      files.set_hook({});
      Life(disk).start();
    });
    EXPECT_THROW(life.store.trial_commit(), SupersededError) << name_of(op);
    EXPECT_THAT(disk.names(kRun), ElementsAre("attempts"));
  }
}

TEST(Rule14Trial, AFullVolumeStopsNoStart) {
  for (const int code : {ENOSPC, EDQUOT}) {
    MemoryFileSystem disk;
    FaultFileSystem files(disk);
    Life life(files);
    life.start_without_trial();
    files.fail(Op::reserve, 1, code);
    testing::internal::CaptureStderr();
    EXPECT_NO_THROW(life.store.trial_commit());
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                testing::AllOf(HasSubstr("no checkpoint can be written"), HasSubstr(strerrorname_np(code))));
    EXPECT_NO_THROW(life.save(100));
  }
}

// A file server that lost its reply repeats the rename.
TEST(Rule14Trial, ARenameThatHappenedTwice) {
  MemoryFileSystem disk;
  FaultFileSystem files(disk);
  files.fail(Op::rename_new, 1, ENOENT, {.after = true});
  Life life(files);
  EXPECT_NO_THROW(life.start());
  EXPECT_THAT(disk.names(kRun), ElementsAre("attempts"));
}

TEST(Rule14Trial, NotBeforeTheSweep) {
  MemoryFileSystem disk;
  Life life(disk);
  life.store.claim();
  EXPECT_THROW(life.store.trial_commit(), Error);
}

}}  // namespace holdfast::test
