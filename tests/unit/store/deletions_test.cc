// Old checkpoints are deleted beside the writer, and a commit costs the same however many there are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "holdfast/store/internal/block_reaper.h"
#include "support/fault_file_system.h"
#include "support/store_life.h"

namespace holdfast::test { namespace {

using testing::Contains;
using testing::ElementsAre;

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
  std::uint64_t trial = 0;
  {
    Life life(disk, {.keep = KeepLast{2}});
    life.start();
    trial = disk.held();
    for (const std::int64_t step : {10, 20, 30, 40, 50}) life.round(step);
    EXPECT_THAT(checkpoints(disk), ElementsAre(name_of_step(40, 1), name_of_step(50, 1)));
    EXPECT_EQ(disk.held() - trial, 3 * 2 * kToyBlock);
  }  // nor does the end of the store
  EXPECT_EQ(disk.held() - trial, 3 * 2 * kToyBlock);
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

Cost cost_of_a_round(int kept) {
  MemoryFileSystem disk;
  FaultFileSystem files(disk);
  Life life(files, {.keep = KeepLast{kept}});
  life.start();
  std::int64_t step = 0;
  for (int i = 0; i < kept + 5; ++i) life.round(step += 10);
  files.clear_log();
  for (int i = 0; i < 10; ++i) life.round(step += 10);
  return {static_cast<int>(files.log().size()) - files.count(Op::list), files.count(Op::list)};
}

TEST(Flatness, ACommitCostsTheSameWithTwoKeptAndWithFifty) {
  const Cost few = cost_of_a_round(2);
  const Cost many = cost_of_a_round(50);
  EXPECT_EQ(many.operations, few.operations);
  EXPECT_EQ(many.lists, few.lists);
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

}}  // namespace holdfast::test
