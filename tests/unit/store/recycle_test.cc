// Rule 12: what is overwritten in place, and when. And what is deleted beside the writer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "holdfast/base/error.h"
#include "holdfast/store/internal/block_reaper.h"
#include "life.h"
#include "support/fault_file_system.h"

namespace holdfast::test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class Rule12Recycle : public testing::Test {
 public:
  StoreOptions options(int keep = 2) const { return {.keep = KeepLast{keep}, .recycle = true}; }
  // Names that begin with "tmp-".
  std::vector<std::string> temporaries() const {
    std::vector<std::string> found;
    for (const std::string& name : disk.names(kRun)) {
      if (name.starts_with("tmp-")) found.push_back(name);
    }
    return found;
  }
  // The first logged operation of that kind whose path or target has `text`; -1: none.
  int first(Op kind, std::string_view text, int from = 0) const {
    const auto log = files.log();
    for (int i = from; i < static_cast<int>(log.size()); ++i) {
      if (log[i].kind == kind && (log[i].path + " " + log[i].to).find(text) != std::string::npos) return i;
    }
    return -1;
  }

  MemoryFileSystem disk;
  FaultFileSystem files{disk};
};

TEST_F(Rule12Recycle, IsOffUnlessAskedFor) {
  Life life(files, {.keep = KeepLast{2}});
  life.start();
  for (const std::int64_t step : {10, 20, 30, 40}) life.round(step);
  EXPECT_EQ(files.count(Op::open_overwrite), 0);
  EXPECT_THAT(temporaries(), IsEmpty());
}

TEST_F(Rule12Recycle, TheOldestIsOverwrittenByTheNextSave) {
  Life life(files, options());
  life.start();
  for (const std::int64_t step : {10, 20, 30}) life.round(step);
  EXPECT_THAT(checkpoints(disk), ElementsAre(name_of_step(20, 1), name_of_step(30, 1)));
  ASSERT_EQ(temporaries().size(), 1u);
  files.clear_log();
  for (const std::int64_t step : {40, 50, 60}) life.round(step);
  EXPECT_EQ(files.count(Op::open_overwrite), 3);
  int created = 0;
  int deleted = 0;
  for (const Operation& operation : files.log()) {
    created += operation.kind == Op::create && operation.path.find("tmp-a0001-step") != std::string::npos;
    deleted += operation.kind == Op::unlink && operation.path.find("/run/") != std::string::npos;
  }
  EXPECT_EQ(created, 0) << "no file is made";
  EXPECT_EQ(deleted, 0) << "none is deleted";
  EXPECT_THAT(checkpoints(disk), ElementsAre(name_of_step(50, 1), name_of_step(60, 1)));
  EXPECT_EQ(disk.get(in_run(name_of_step(60, 1))), toy_bytes(life.toy(60)));
}

TEST_F(Rule12Recycle, ItsOldNameIsDurablyGoneBeforeAByteIsOverwritten) {
  Life life(files, options());
  life.start();
  for (const std::int64_t step : {10, 20, 30}) life.round(step);
  life.save(40);
  const int renamed = first(Op::rename_new, name_of_step(10, 1) + " tmp-");
  const int opened = first(Op::open_overwrite, "tmp-");
  ASSERT_GE(renamed, 0);
  ASSERT_GE(opened, 0);
  const int synced = first(Op::sync_directory, kRun.native(), renamed);
  EXPECT_GT(synced, renamed);
  EXPECT_LT(synced, opened);
}

TEST_F(Rule12Recycle, ACrashWhileItIsOverwrittenLeavesNoSuchCheckpoint) {
  int cuts = 0;
  {
    Life life(files, options());
    life.start();
    for (const std::int64_t step : {10, 20, 30}) life.round(step);
    files.set_hook([&](const Operation& operation) {
      if (operation.kind != Op::write || operation.path.find("spare") == std::string::npos) return;
      ++cuts;
      for (const bool most : {false, true}) {
        MemoryFileSystem left = most ? disk.copy() : disk.crash();
        Life next(left);
        EXPECT_EQ(next.start().newest->step, 30);
        EXPECT_THAT(left.names(kRun), Not(Contains(name_of_step(10, 1))));
        for (const std::string& name : left.names(kRun)) EXPECT_FALSE(name.starts_with("tmp-")) << name;
      }
    });
    life.save(40);
    files.set_hook({});
  }
  EXPECT_EQ(cuts, 2);
}

TEST_F(Rule12Recycle, ASupersededAttemptOverwritesNothing) {
  Life life(files, options());
  life.start();
  for (const std::int64_t step : {10, 20, 30}) life.round(step);
  const auto held = disk.get(in_run(temporaries().at(0)));
  // The rival claims, and has not swept yet.
  Life rival(disk);
  rival.store.preflight();
  rival.store.claim();
  files.clear_log();
  EXPECT_THROW(life.save(40), SupersededError);
  EXPECT_EQ(files.count(Op::write), 0);
  EXPECT_EQ(files.count(Op::open_overwrite), 0);
  EXPECT_EQ(held, toy_bytes({.step = 10, .attempt = 1}));
}

// The claim comes between the look of the retention and its rename.
TEST_F(Rule12Recycle, WhatASuccessorMayBeReadingIsNotOverwritten) {
  Life life(files, options());
  life.start();
  for (const std::int64_t step : {10, 20}) life.round(step);
  life.save(30);
  std::optional<Life> rival;
  std::unique_ptr<File> reading;
  files.set_hook([&](const Operation& operation) {
    if (operation.kind != Op::rename_new || operation.path != in_run(name_of_step(10, 1)) || rival) return;
    rival.emplace(disk);
    rival->store.preflight();
    rival->store.claim();
    reading = disk.open_file(in_run(name_of_step(10, 1)), OpenMode::read);
  });
  life.store.apply_retention();
  files.set_hook({});
  EXPECT_THROW(life.save(40), SupersededError);
  ASSERT_NE(reading, nullptr);
  std::vector<std::byte> bytes(reading->size());
  reading->read_at(bytes, 0);
  EXPECT_EQ(bytes, toy_bytes({.step = 10, .attempt = 1}));
  EXPECT_EQ(rival->recover().newest->step, 30);
}

TEST_F(Rule12Recycle, ASpareThatVanishedMeansSuperseded) {
  Life life(files, options());
  life.start();
  for (const std::int64_t step : {10, 20, 30}) life.round(step);
  ASSERT_EQ(temporaries().size(), 1u);
  disk.open_directory(kRun, false)->unlink(temporaries().front());  // as a successor's sweep does
  EXPECT_THROW(life.save(40), SupersededError);
}

TEST_F(Rule12Recycle, AFailedFsyncOfTheDirectoryOverwritesNothing) {
  Life life(files, options());
  life.start();
  for (const std::int64_t step : {10, 20}) life.round(step);
  life.save(30);
  files.clear_log();
  files.fail(Op::sync_directory, 1, EIO);
  EXPECT_THROW(life.store.apply_retention(), IoError);
  EXPECT_THROW(life.save(40), IoError);
  EXPECT_EQ(files.count(Op::open_overwrite), 0);
}

TEST_F(Rule12Recycle, AFailedSaveIntoItCostsOneSave) {
  for (const Op failing : {Op::open_overwrite, Op::write, Op::reserve, Op::sync_file, Op::close}) {
    MemoryFileSystem fresh;
    FaultFileSystem faults(fresh);
    Life life(faults, options());
    life.start();
    for (const std::int64_t step : {10, 20, 30}) life.round(step);
    faults.fail(failing, 1, EIO);
    EXPECT_THROW(life.save(40), IoError) << name_of(failing);
    EXPECT_EQ(faults.faults_fired(), 1);
    life.round(50);
    EXPECT_EQ(fresh.get(in_run(name_of_step(50, 1))), toy_bytes(life.toy(50)));
    EXPECT_THAT(checkpoints(fresh), Contains(name_of_step(30, 1)));
  }
}

TEST_F(Rule12Recycle, WhatMayNotBeOpenedForWritingIsReplacedByANewFile) {
  Life life(files, options());
  life.start();
  for (const std::int64_t step : {10, 20, 30}) life.round(step);
  files.fail(Op::open_overwrite, 1, EACCES);
  life.save(40);
  EXPECT_EQ(disk.get(in_run(name_of_step(40, 1))), toy_bytes(life.toy(40)));
  EXPECT_THAT(temporaries(), IsEmpty());
}

TEST_F(Rule12Recycle, ALongerOldFileLeavesNothingBehindTheEnd) {
  Life life(files, options());
  life.start();
  for (const std::int64_t step : {10, 20, 30}) {
    Toy large = life.toy(step);
    large.body_blocks = 5;
    life.store.commit(toy_request(large));
    life.store.apply_retention();
  }
  EXPECT_EQ(disk.get(in_run(temporaries().at(0))).size(), 6 * kToyBlock);
  life.save(40);
  EXPECT_EQ(disk.get(in_run(name_of_step(40, 1))), toy_bytes(life.toy(40)));
}

TEST_F(Rule12Recycle, TheEndOfTheStoreGivesTheSpaceBack) {
  {
    Life life(files, options());
    life.start();
    for (const std::int64_t step : {10, 20, 30}) life.round(step);
    EXPECT_EQ(temporaries().size(), 1u);
  }
  EXPECT_THAT(temporaries(), IsEmpty());
  EXPECT_EQ(checkpoints(disk).size(), 2u);
}

TEST_F(Rule12Recycle, OnlyWhatRetentionMayDeleteIsTaken) {
  Life life(files, options());
  life.start();
  life.round(10);
  life.round(20);
  for (const std::int64_t step : {30, 40, 50}) life.round(step, false);
  EXPECT_THAT(checkpoints(disk), ElementsAre(name_of_step(20, 1), name_of_step(40, 1), name_of_step(50, 1)));
}

class Deletions : public testing::Test {
 public:
  // Nothing is freed before open().
  void block() {
    disk.hold_deleted([this] {
      std::unique_lock lock(mutex);
      opened.wait(lock, [&] { return open_; });
    });
  }
  void open() {
    const std::lock_guard lock(mutex);
    open_ = true;
    opened.notify_all();
  }
  void wait_until_freed() const {
    while (disk.held() != 0) std::this_thread::yield();
  }

  MemoryFileSystem disk;
  std::mutex mutex;
  std::condition_variable opened;
  bool open_ = false;
};

TEST_F(Deletions, ASaveDoesNotWaitForTheBlocksOfADeletedFile) {
  block();
  {
    Life life(disk, {.keep = KeepLast{2}});
    life.start();
    for (const std::int64_t step : {10, 20, 30, 40, 50}) life.round(step);
    EXPECT_THAT(checkpoints(disk), ElementsAre(name_of_step(40, 1), name_of_step(50, 1)));
    EXPECT_EQ(disk.held(), 3 * 2 * kToyBlock);
  }  // nor does the end of the store
  EXPECT_EQ(disk.held(), 3 * 2 * kToyBlock);
  open();
  wait_until_freed();
}

TEST_F(Deletions, AFullDiskIsBelievedOnlyWhenTheyAreFreed) {
  Life life(disk, {.keep = KeepLast{2}});
  life.start();
  for (const std::int64_t step : {10, 20, 30}) life.round(step);
  disk.hold_deleted([this] {
    std::unique_lock lock(mutex);
    opened.wait_for(lock, std::chrono::milliseconds(200), [&] { return open_; });
  });
  life.save(40);
  // Room for what is there, and nothing else: the next save needs what the deletion frees.
  std::uint64_t used = 0;
  for (const std::string& name : disk.names(kRun)) {
    if (name != kAttemptsDirectory) used += disk.get(in_run(name)).size();
  }
  for (const std::string& name : disk.names(kRun / kAttemptsDirectory)) {
    used += disk.get(kRun / kAttemptsDirectory / name).size();
  }
  disk.set_capacity(used);
  life.store.apply_retention();
  EXPECT_GT(disk.held(), 0u);
  life.save(50);
  EXPECT_THAT(checkpoints(disk), Contains(name_of_step(50, 1)));
}

TEST_F(Deletions, WhereManyWaitTheRestIsFreedAtOnce) {
  block();
  const auto directory = disk.open_directory("/volume", true);
  internal::BlockReaper reaper;
  std::thread opener([this] {
    while (disk.held() < 9 * kToyBlock) std::this_thread::yield();
    open();
  });
  for (int i = 0; i < 40; ++i) {
    const std::string name = "f" + std::to_string(i);
    directory->open(name, OpenMode::create)->truncate(kToyBlock);
    EXPECT_TRUE(reaper.unlink(*directory, name));
  }
  opener.join();
  reaper.drain();
  EXPECT_EQ(disk.held(), 0u);
  EXPECT_FALSE(reaper.busy());
  EXPECT_FALSE(reaper.unlink(*directory, "f1"));
}

// What a commit costs in operations; lists of names aside, which grow with the names.
struct Cost {
  int operations = 0;
  int lists = 0;
};

Cost cost_of_a_round(int kept, bool recycle) {
  MemoryFileSystem disk;
  FaultFileSystem files(disk);
  Life life(files, {.keep = KeepLast{kept}, .recycle = recycle});
  life.start();
  std::int64_t step = 0;
  for (int i = 0; i < kept + 5; ++i) life.round(step += 10);
  files.clear_log();
  for (int i = 0; i < 10; ++i) life.round(step += 10);
  return {static_cast<int>(files.log().size()) - files.count(Op::list), files.count(Op::list)};
}

TEST(Flatness, ACommitCostsTheSameWithTwoKeptAndWithFifty) {
  for (const bool recycle : {false, true}) {
    const Cost few = cost_of_a_round(2, recycle);
    const Cost many = cost_of_a_round(50, recycle);
    EXPECT_EQ(many.operations, few.operations);
    EXPECT_EQ(many.lists, few.lists);
  }
}

TEST(Flatness, TheTwoHundredthCommitCostsWhatTheFirstOnesCost) {
  MemoryFileSystem disk;
  FaultFileSystem files(disk);
  Life life(files, {.keep = KeepLast{3}});
  life.start();
  std::vector<std::size_t> costs;
  for (int i = 1; i <= 200; ++i) {
    files.clear_log();
    life.round(i * 10);
    costs.push_back(files.log().size());
  }
  EXPECT_EQ(costs[199], costs[10]);
  EXPECT_EQ(*std::max_element(costs.begin() + 10, costs.end()), costs[10]);
}

TEST(Flatness, AlsoForAStoreThatBeganOnManyFilesOfOthers) {
  MemoryFileSystem disk;
  {
    Life life(disk, {.keep = KeepLast{50}});
    life.start();
    for (int i = 1; i <= 50; ++i) life.round(i * 10);
  }
  FaultFileSystem files(disk);
  Life life(files, {.keep = KeepLast{50}});
  life.start();
  std::vector<std::size_t> costs;
  for (int i = 51; i <= 70; ++i) {
    files.clear_log();
    life.round(i * 10);
    costs.push_back(files.log().size());
  }
  EXPECT_LE(*std::max_element(costs.begin() + 3, costs.end()), costs[3] + 4);
  EXPECT_LE(costs[3], 60u);
}

}  // namespace
}  // namespace holdfast::test
