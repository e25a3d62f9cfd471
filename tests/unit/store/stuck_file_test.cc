// A file that can be neither deleted nor moved (chattr +i, EBUSY, a bad directory block) must not keep retention
// from making room: then ENOSPC would fail every save.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <set>

#include "holdfast/base/error.h"
#include "holdfast/store/prune.h"
#include "support/fault_file_system.h"
#include "support/store_life.h"

namespace holdfast::test { namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

class Stuck : public testing::Test {
 protected:
  void stick(Op operation, std::set<std::string> names) {
    files.set_hook([operation, names = std::move(names)](const Operation& one) {
      for (const std::string& name : names) {
        if (one.kind == operation && one.path == in_run(name)) throw IoError("stuck", one.path, EPERM);
      }
    });
  }
  // A first attempt that saved these steps.
  void history(std::initializer_list<std::int64_t> steps) {
    Life life(disk, {.keep = KeepLast{100}});
    life.start();
    for (const std::int64_t step : steps) life.save(step);
  }
  // What retention throws after the save of that step; empty: nothing.
  static std::string retention(Life& life, std::int64_t step) {
    try {
      life.round(step);
    } catch (const IoError& error) {
      EXPECT_EQ(error.code(), EPERM);
      return error.what();
    }
    return {};
  }

  MemoryFileSystem disk;
  FaultFileSystem files{disk};
};

TEST_F(Stuck, AFileThatCannotBeDeletedKeepsNoOtherOne) {
  stick(Op::unlink, {name_of_step(10, 1), name_of_step(40, 1)});
  Life life(files, {.keep = KeepLast{2}});
  life.start();
  for (std::int64_t step = 10; step <= 100; step += 10) {
    const std::string said = retention(life, step);
    if (step >= 30) {
      EXPECT_THAT(said, HasSubstr(name_of_step(10, 1))) << "the first failure is told";
    }
  }
  EXPECT_THAT(checkpoints(disk), ElementsAre(name_of_step(10, 1), name_of_step(40, 1), name_of_step(90, 1),
                                             name_of_step(100, 1)));
  files.set_hook({});
  life.round(110);
  EXPECT_THAT(checkpoints(disk), ElementsAre(name_of_step(100, 1), name_of_step(110, 1)));
}

TEST_F(Stuck, ADamagedFileThatCannotBeMovedKeepsNoOtherOne) {
  history({10, 20, 30, 40});
  for (const std::int64_t step : {30, 40}) rot(disk, name_of_step(step, 1));
  stick(Op::rename_new, {name_of_step(40, 1)});
  Life life(files, {.keep = KeepLast{2}});
  EXPECT_EQ(life.start().newest->step, 20);
  for (std::int64_t step = 50; step <= 100; step += 10)
    EXPECT_THAT(retention(life, step), HasSubstr(name_of_step(40, 1)));
  EXPECT_THAT(checkpoints(disk), ElementsAre(name_of_step(30, 1) + ".damaged", name_of_step(40, 1),
                                             name_of_step(90, 2), name_of_step(100, 2)));
  files.set_hook({});
  life.round(110);
  EXPECT_THAT(checkpoints(disk), Contains(name_of_step(40, 1) + ".damaged")) << "tried again";
}

// A mirror commits a copy under the name of a file that was moved.
TEST_F(Stuck, AFileThatWasMovedIsNotLookedForAgain) {
  history({10, 20, 30, 40});
  const auto good = disk.get(in_run(name_of_step(30, 1)));
  for (const std::int64_t step : {30, 40}) rot(disk, name_of_step(step, 1));
  stick(Op::rename_new, {name_of_step(40, 1)});
  Life life(files, {.keep = KeepLast{2}});
  life.start();
  EXPECT_THAT(retention(life, 50), HasSubstr(name_of_step(40, 1)));
  EXPECT_TRUE(disk.open_directory(kRun, false)->unlink(name_of_step(30, 1) + ".damaged"));
  disk.put(in_run(name_of_step(30, 1)), good);
  EXPECT_THAT(retention(life, 60), HasSubstr(name_of_step(40, 1)));
  EXPECT_THAT(checkpoints(disk), Contains(name_of_step(30, 1)));
}

TEST_F(Stuck, AnOldDamagedFileThatCannotBeDeletedKeepsNoOtherOne) {
  history({10, 20, 30, 40, 50, 60});
  for (const std::int64_t step : {30, 40, 50, 60}) rot(disk, name_of_step(step, 1));
  stick(Op::unlink, {name_of_step(40, 1) + ".damaged"});
  Life life(files, {.keep = KeepLast{2}});
  EXPECT_EQ(life.start().newest->step, 20);
  EXPECT_THAT(retention(life, 70), HasSubstr(name_of_step(40, 1)));
  EXPECT_THAT(checkpoints(disk), ElementsAre(name_of_step(20, 1), name_of_step(40, 1) + ".damaged",
                                             name_of_step(50, 1) + ".damaged",
                                             name_of_step(60, 1) + ".damaged", name_of_step(70, 2)));
}

// A superseded attempt deletes nothing more, whatever failed before.
TEST_F(Stuck, ANewerClaimEndsTheDeletionsAtOnce) {
  history({10, 20, 30, 40, 50});
  Life life(files, {.keep = KeepLast{2}});
  life.start();
  life.save(60);
  int unlinks = 0;
  files.set_hook([&](const Operation& operation) {
    if (operation.kind != Op::unlink || ++unlinks > 1) return;
    Life(disk).store.claim();
    throw IoError("unlink", operation.path, EPERM);
  });
  EXPECT_THROW(life.store.apply_retention(), SupersededError);
  EXPECT_EQ(unlinks, 1);
}

TEST_F(Stuck, PruneDeletesTheOthersAndFails) {
  history({10, 20, 30, 40, 50});
  stick(Op::unlink, {name_of_step(10, 1)});
  FakeClock clock;
  ToyVerifier verifier;
  EXPECT_THROW(
      prune(files, clock, verifier, {.directory = kRun, .keep = KeepLast{2}, .even_if_running = true}),
      IoError);
  EXPECT_THAT(checkpoints(disk), ElementsAre(name_of_step(10, 1), name_of_step(40, 1), name_of_step(50, 1)));
}

}}  // namespace holdfast::test
