// Rule 4 on a full volume: a commit that finds no room deletes what a prune would, and is tried once more.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>

#include "holdfast/base/error.h"
#include "support/fault_file_system.h"
#include "support/store_life.h"

namespace holdfast::test { namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Not;

class Rule4Room : public testing::Test {
 public:
  // What lives leave that end before they delete anything.
  void leave(std::initializer_list<std::int64_t> steps) {
    Life life(disk, {.keep = KeepLast{100}});
    life.start();
    for (const std::int64_t step : steps) life.round(step);
  }
  // No room for one more checkpoint beside those that are there.
  void fill() { disk.set_capacity(used() + kToyBlock); }
  std::uint64_t used() const {
    std::uint64_t bytes = 0;
    for (const std::string& name : disk.names(kRun)) {
      if (name != kAttemptsDirectory) bytes += disk.get(in_run(name)).size();
    }
    for (const std::string& name : disk.names(kRun / kAttemptsDirectory)) {
      bytes += disk.get(kRun / kAttemptsDirectory / name).size();
    }
    return bytes;
  }
  static StoreOptions making_room(Retention keep = KeepLast{2}) {
    return {.keep = std::move(keep), .makes_room = true};
  }
  static int full_looks(const Life& life) {
    return static_cast<int>(std::count_if(life.verifier.asked.begin(), life.verifier.asked.end(),
                                          [](auto& it) { return it.depth == Verifier::Depth::full; }));
  }
  // Whether the save failed because there was no room.
  static void expect_no_room(Life& life, std::int64_t step) {
    try {
      life.save(step);
      ADD_FAILURE() << "saved";
    } catch (const IoError& error) {
      EXPECT_EQ(error.code(), ENOSPC) << error.what();
    }
  }

  MemoryFileSystem disk;
  FaultFileSystem files{disk};
};

TEST_F(Rule4Room, TheFirstSaveOfAnAttemptTakesThePlaceOfSupersededFiles) {
  leave({10, 20, 30, 40, 50});
  Life life(disk, making_room());
  life.start();
  fill();
  life.save(60);
  EXPECT_THAT(checkpoints(disk), ElementsAre(name_of_step(40, 1), name_of_step(50, 1), name_of_step(60, 2)));
}

TEST_F(Rule4Room, OnlyWhereTheOptionsSaySo) {
  leave({10, 20, 30, 40, 50});
  Life life(disk, {.keep = KeepLast{2}});
  life.start();
  fill();
  expect_no_room(life, 60);
  EXPECT_EQ(checkpoints(disk).size(), 5u);
}

TEST_F(Rule4Room, WithRoomNothingGoesBeforeTheSave) {
  leave({10, 20, 30, 40, 50});
  Life life(disk, making_room());
  life.start();
  life.save(60);
  EXPECT_EQ(checkpoints(disk).size(), 6u);
}

TEST_F(Rule4Room, WhereAllStayNoFileIsReadInVain) {
  leave({10, 20});
  Life life(disk, making_room());
  life.start();
  fill();
  const int looks = full_looks(life);
  expect_no_room(life, 30);
  EXPECT_EQ(full_looks(life), looks);
  EXPECT_EQ(checkpoints(disk).size(), 2u);
}

TEST_F(Rule4Room, DamagedFilesTakeNobodysPlace) {
  leave({10, 20, 30, 40, 50});
  rot(disk, name_of_step(40, 1));
  rot(disk, name_of_step(20, 1));
  Life life(disk, making_room());
  life.start();
  fill();
  life.save(60);
  EXPECT_THAT(checkpoints(disk), Contains(name_of_step(30, 1)));
  EXPECT_THAT(checkpoints(disk), Contains(name_of_step(50, 1)));
  EXPECT_THAT(checkpoints(disk), Not(Contains(name_of_step(10, 1))));
}

TEST_F(Rule4Room, TheStartAloneJustifiesNothing) {
  leave({10, 20, 30, 40, 50});
  for (const std::int64_t step : {10, 20, 30, 40}) rot(disk, name_of_step(step, 1));
  Life life(disk, making_room());
  life.start();
  fill();
  expect_no_room(life, 60);
  EXPECT_EQ(checkpoints(disk).size(), 5u);
}

TEST_F(Rule4Room, AChosenStartJustifiesNothing) {
  leave({10, 20, 30, 40, 50});
  StoreOptions options = making_room();
  options.start = {.step = 40};
  Life life(disk, options);
  life.start();
  fill();
  expect_no_room(life, 41);
  EXPECT_EQ(checkpoints(disk).size(), 5u);
}

TEST_F(Rule4Room, ThePoliciesAndOtherHistoriesKeepTheirs) {
  leave({10, 20, 30, 40, 50});
  {  // a branch, from 20
    Life branch(disk, {.start = {.step = 20}, .keep = KeepLast{100}});
    branch.start();
    for (const std::int64_t step : {21, 22, 23, 24}) branch.round(step);
  }
  Life life(disk, making_room(KeepLast{2} | KeepEvery{10}));
  life.start();
  fill();
  life.save(25);
  // 30 to 50 are of the history that the branch left.
  EXPECT_THAT(checkpoints(disk),
              testing::UnorderedElementsAre(name_of_step(10, 1), name_of_step(20, 1), name_of_step(30, 1),
                                            name_of_step(40, 1), name_of_step(50, 1), name_of_step(23, 2),
                                            name_of_step(24, 2), name_of_step(25, 3)));
}

TEST_F(Rule4Room, AVolumeThatTellsItLateGetsASecondFile) {
  leave({10, 20, 30, 40, 50});
  for (const Op late : {Op::write, Op::sync_file, Op::close}) {
    MemoryFileSystem volume = disk.copy();
    FaultFileSystem faults(volume);
    Life life(faults, making_room());
    life.start();
    faults.fail(late, 1, late == Op::sync_file ? EDQUOT : ENOSPC);
    life.save(60);
    EXPECT_THAT(checkpoints(volume),
                ElementsAre(name_of_step(40, 1), name_of_step(50, 1), name_of_step(60, 2)));
    EXPECT_EQ(volume.get(in_run(name_of_step(60, 2))), toy_bytes(life.toy(60)));
  }
}

TEST_F(Rule4Room, OthersWhoWereToldAFileHearOfNoSecond) {
  leave({10, 20, 30, 40, 50});
  Life life(files, making_room());
  life.start();
  int told = 0;
  CommitRequest request = toy_request(life.toy(60));
  request.opened = [&](const std::string& /*name*/) { ++told; };
  files.fail(Op::reserve, 1, ENOSPC);
  life.store.commit(request);
  EXPECT_EQ(told, 1);
  EXPECT_EQ(checkpoints(disk).size(), 3u);

  request = toy_request(life.toy(70));
  request.opened = [&](const std::string& /*name*/) { ++told; };
  files.fail(Op::write, 1, ENOSPC);
  EXPECT_THROW(life.store.commit(request), IoError);
  EXPECT_EQ(told, 2);
}

TEST_F(Rule4Room, ANewerAttemptKeepsAll) {
  leave({10, 20, 30, 40, 50});
  Life life(files, making_room());
  life.start();
  files.set_hook([&](const Operation& operation) {
    if (operation.kind == Op::reserve) disk.put(kRun / kAttemptsDirectory / "9", "");
  });
  files.fail(Op::reserve, 1, ENOSPC);
  EXPECT_THROW(life.save(60), SupersededError);
  EXPECT_EQ(checkpoints(disk).size(), 5u);
}

TEST_F(Rule4Room, AFileThatCannotBeDeletedKeepsNoOther) {
  leave({10, 20, 30, 40, 50});
  Life life(files, making_room());
  life.start();
  // The first is the abandoned file's.
  files.fail(Op::reserve, 1, ENOSPC);
  files.fail(Op::unlink, 2, EPERM);
  life.save(60);
  EXPECT_THAT(checkpoints(disk), ElementsAre(name_of_step(10, 1), name_of_step(40, 1), name_of_step(50, 1),
                                             name_of_step(60, 2)));
}

}}  // namespace holdfast::test
