// Whoever changes HOME_STATE.json, and however slowly: nobody's change is lost, and no lock stays.
#include "holdfast/mirror/home_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/store/names.h"
#include "support/fault_file_system.h"
#include "support/memory_file_system.h"

namespace holdfast::test { namespace {

using testing::ElementsAre;

class HomeRecords : public testing::Test {
 protected:
  void add(AttemptNumber claim) {
    update_home_record(*run, [&](const std::optional<HomeRecord>& told) {
      HomeRecord record = told.value_or(HomeRecord{.home = "/efs/run"});
      record.add(claim);
      return record;
    });
  }
  bool is_locked() { return run->status(kHomeStateNewName).has_value(); }

  MemoryFileSystem disk;
  FaultFileSystem faults{disk};
  const std::unique_ptr<Directory> run = faults.open_directory("/run", true);
};

// The other one takes the lock of a writer that seems dead; the slow one must not rename the other's file.
TEST_F(HomeRecords, ASlowWriterLosesNoChangeOfAnother) {
  int merges = 0;
  update_home_record(*run, [&](const std::optional<HomeRecord>& told) {
    HomeRecord record = told.value_or(HomeRecord{.home = "/efs/run"});
    record.add(1);
    if (++merges == 1) add(2);
    return record;
  });
  EXPECT_EQ(merges, 2);
  EXPECT_THAT(read_home_record(*run)->claims, ElementsAre(1, 2));
  EXPECT_FALSE(is_locked());
}

// The same, and the slow one has looked already whether the lock is still its own.
TEST_F(HomeRecords, AWriterThatIsSlowAtTheVeryEndLosesNoChangeOfAnother) {
  for (const Op slow : {Op::rename_over, Op::close}) {
    const std::unique_ptr<Directory> other = disk.open_directory("/run", false);
    update_home_record(*other, [](const auto&) { return HomeRecord{.home = "/efs/run", .claims = {1}}; });
    bool stalled = false;
    faults.set_hook([&](const Operation& operation) {
      if (operation.kind == slow && !std::exchange(stalled, true)) add(2);
    });
    add(3);
    faults.set_hook({});
    EXPECT_TRUE(stalled);
    EXPECT_THAT(read_home_record(*run)->claims, ElementsAre(1, 2, 3)) << name_of(slow);
    EXPECT_FALSE(is_locked());
  }
}

// The slow one's rename puts a file in place that the other has only begun to write.
TEST_F(HomeRecords, AHalfWrittenFileOfAnotherIsReplaced) {
  add(1);
  std::unique_ptr<File> others;
  faults.set_hook([&](const Operation& operation) {
    if (operation.kind != Op::rename_over || others) return;
    run->unlink(kHomeStateNewName);
    others = run->open(kHomeStateNewName, OpenMode::create);
  });
  add(2);
  const auto record = read_home_record(*run);
  ASSERT_TRUE(record);
  EXPECT_THAT(record->claims, ElementsAre(1, 2)) << "what the old record said stands too";
  EXPECT_FALSE(is_locked());
}

TEST_F(HomeRecords, AWriterWhoseLockAnotherHoldsLeavesItThere) {
  std::unique_ptr<File> others;
  EXPECT_THROW(update_home_record(*run,
                                  [&](const std::optional<HomeRecord>&) -> HomeRecord {
                                    run->unlink(kHomeStateNewName);
                                    others = run->open(kHomeStateNewName, OpenMode::create);
                                    throw UsageError("no merge");
                                  }),
               UsageError);
  EXPECT_TRUE(is_locked());
}

TEST_F(HomeRecords, ALockThatAKilledProcessLeftIsRemoved) {
  run->open(kHomeStateNewName, OpenMode::create);
  add(1);
  EXPECT_THAT(read_home_record(*run)->claims, ElementsAre(1));
  EXPECT_FALSE(is_locked());
}

TEST_F(HomeRecords, AWriteThatFailsLeavesTheOldRecordAndNoLock) {
  add(1);
  faults.fail(Op::sync_file, 1, EIO);
  EXPECT_THROW(add(2), IoError);
  EXPECT_THAT(read_home_record(*run)->claims, ElementsAre(1));
  EXPECT_FALSE(is_locked());
}

}}  // namespace holdfast::test
