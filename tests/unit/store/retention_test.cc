// Rule 4: what retention deletes, and above all what it does not.
#include "holdfast/store/retention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "holdfast/base/error.h"
#include "holdfast/store/lineage.h"
#include "support/fault_file_system.h"
#include "support/store_life.h"

namespace holdfast::test { namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;

class Rule4Retention : public testing::Test {
 public:
  MemoryFileSystem disk;
};

TEST_F(Rule4Retention, TheNewestStay) {
  Life life(disk);
  life.start();
  for (const std::int64_t step : {10, 20, 30, 40, 50}) life.round(step);
  EXPECT_THAT(checkpoints(disk), ElementsAre(name_of_step(30, 1), name_of_step(40, 1), name_of_step(50, 1)));
}

TEST_F(Rule4Retention, KeepOneIsRefused) {
  EXPECT_THROW(Life(disk, {.keep = KeepLast{1}}), UsageError);
  EXPECT_THROW(Life(disk, {.keep = KeepLast{0}}), UsageError);
  EXPECT_THROW(Life(disk, {.keep = KeepLast{-3}}), UsageError);
}

TEST_F(Rule4Retention, NothingIsDeletedBeforeAnAcknowledgement) {
  {
    Life life(disk, {.keep = KeepLast{100}});
    life.start();
    for (const std::int64_t step : {10, 20, 30, 40, 50}) life.round(step);
  }
  FaultFileSystem files(disk);
  Life life(files, {.keep = KeepLast{2}});
  life.start();
  files.clear_log();
  life.store.apply_retention();
  EXPECT_EQ(files.count(Op::unlink), 0);
  files.fail(Op::sync_file, 1, EIO);
  EXPECT_THROW(life.save(60), IoError);
  life.store.apply_retention();
  EXPECT_EQ(checkpoints(disk).size(), 5u);
  life.round(70);
  EXPECT_THAT(checkpoints(disk), ElementsAre(name_of_step(50, 1), name_of_step(70, 2)));
}

TEST_F(Rule4Retention, NeverBelowTwoThatThisAttemptWroteOrVerified) {
  {
    Life life(disk, {.keep = KeepLast{100}});
    life.start();
    for (const std::int64_t step : {10, 20, 30}) life.round(step);
  }
  // The two newer ones were never looked at by the attempt that starts from 10 by choice, and 20 and 30 are
  // of another branch for it; so only 10 and its own may count.
  Life life(disk, {.start = {.step = 10}, .keep = KeepLast{2}});
  life.start();
  life.round(12);
  EXPECT_THAT(checkpoints(disk), Contains(name_of_step(10, 1)));
  life.round(14);
  EXPECT_THAT(checkpoints(disk), testing::Not(Contains(name_of_step(10, 1))));
}

TEST_F(Rule4Retention, AFreshAttemptOnItsFirstFileDeletesNothing) {
  const FileId own{.attempt = 5, .step = 10};
  EXPECT_THAT(superfluous({.present = {own, {1, 9}, {1, 8}, {1, 7}},
                           .trusted = {{own, true}},
                           .newest_acknowledged = own,
                           .newest_finite = own},
                          KeepLast{2}),
              IsEmpty());
}

TEST_F(Rule4Retention, UnverifiedFilesDoNotCountTowardsTheTwo) {
  const FileId newest{.attempt = 2, .step = 90};
  const FileId start{.attempt = 1, .step = 10};
  // Between the two lie files of the own lineage that nobody has looked at.
  EXPECT_THAT(superfluous({.present = {newest, {2, 80}, {2, 70}, start, {1, 5}},
                           .trusted = {{newest, true}, {start, true}},
                           .newest_acknowledged = newest,
                           .newest_finite = newest},
                          KeepLast{2}),
              ElementsAre(FileId{1, 5}, FileId{2, 70}));
}

TEST_F(Rule4Retention, NothingNewerThanTheAcknowledgedIsDeleted) {
  const FileId acknowledged{.attempt = 2, .step = 50};
  const FileId older{.attempt = 2, .step = 40};
  EXPECT_THAT(superfluous({.present = {{2, 80}, {2, 70}, {2, 60}, acknowledged, older, {2, 30}},
                           .trusted = {{acknowledged, true}, {older, true}},
                           .newest_acknowledged = acknowledged,
                           .newest_finite = acknowledged},
                          KeepLast{2}),
              ElementsAre(FileId{2, 30}));
}

TEST_F(Rule4Retention, TheNewestFiniteStays) {
  Life life(disk, {.keep = KeepLast{2}});
  life.start();
  life.round(10);
  life.round(20);
  for (const std::int64_t step : {30, 40, 50, 60}) life.round(step, false);
  EXPECT_THAT(checkpoints(disk), ElementsAre(name_of_step(20, 1), name_of_step(50, 1), name_of_step(60, 1)));
  life.round(70);
  life.round(80);
  EXPECT_THAT(checkpoints(disk), ElementsAre(name_of_step(70, 1), name_of_step(80, 1)));
}

TEST_F(Rule4Retention, AWeekOfNanAcrossAttemptsKeepsAGoodPast) {
  {
    Life life(disk, {.keep = KeepLast{2}});
    life.start();
    life.round(10);
    life.round(20);
    life.round(30, false);
  }
  for (std::int64_t step = 40; step < 100; step += 10) {
    Life life(disk, {.keep = KeepLast{2}});
    life.start();
    life.round(step, false);
    life.round(step + 1, false);
    life.round(step + 2, false);
  }
  EXPECT_THAT(checkpoints(disk), ElementsAre(name_of_step(20, 1), name_of_step(91, 7), name_of_step(92, 7)));
}

TEST_F(Rule4Retention, AFiniteFileThatRottedDoesNotCount) {
  {
    Life life(disk, {.keep = KeepLast{100}});
    life.start();
    life.round(10);
    life.round(20);
    life.round(30, false);
  }
  rot(disk, name_of_step(20, 1));
  Life life(disk, {.keep = KeepLast{2}});
  life.start();
  for (const std::int64_t step : {40, 50, 60}) life.round(step, false);
  EXPECT_THAT(checkpoints(disk), Contains(name_of_step(10, 1)));
}

// The last good one rots behind the attempt that wrote it, or began with it: what is beneath it stays.
TEST_F(Rule4Retention, AFiniteFileThatRotsMeanwhileDoesNotCount) {
  {
    Life life(disk, {.keep = KeepLast{100}});
    life.start();
    for (const std::int64_t step : {10, 20}) life.round(step);
  }
  Life life(disk, {.keep = KeepLast{2}});
  life.start();
  rot(disk, name_of_step(20, 1));
  for (const std::int64_t step : {30, 40, 50}) life.round(step, false);
  EXPECT_THAT(checkpoints(disk), Contains(name_of_step(10, 1)));

  for (const std::int64_t step : {60, 70}) life.round(step);
  rot(disk, name_of_step(70, 2));
  for (const std::int64_t step : {80, 90, 100}) life.round(step, false);
  EXPECT_THAT(checkpoints(disk), Contains(name_of_step(60, 2)));
  EXPECT_THAT(checkpoints(disk), testing::Not(Contains(name_of_step(30, 2))));
}

TEST_F(Rule4Retention, OtherLineagesAreLeftAlone) {
  {
    Life life(disk, {.keep = KeepLast{100}});
    life.start();
    for (const std::int64_t step : {10, 20, 30}) life.round(step);
  }
  {
    Life branch(disk, {.start = {.step = 10}, .keep = KeepLast{100}});
    branch.start();
    branch.round(11);
    branch.round(25);
  }
  // Grows from step 11 of attempt 2: 25 of attempt 2 and 20, 30 of attempt 1 were left behind.
  Life life(disk, {.start = {.step = 11}, .keep = KeepLast{2}});
  life.start();
  for (const std::int64_t step : {12, 13, 40, 50}) life.round(step);
  EXPECT_THAT(checkpoints(disk), ElementsAre(name_of_step(20, 1), name_of_step(25, 2), name_of_step(30, 1),
                                             name_of_step(40, 3), name_of_step(50, 3)));
}

TEST_F(Rule4Retention, LineageIsDecidedByAncestry) {
  const Lineage lineage{.own = 5, .ancestry = {{1, 100}, {4, 300}}};
  EXPECT_TRUE(lineage.contains({.attempt = 5, .step = 1}));
  EXPECT_TRUE(lineage.contains({.attempt = 1, .step = 100}));
  EXPECT_TRUE(lineage.contains({.attempt = 4, .step = 0}));
  EXPECT_FALSE(lineage.contains({.attempt = 1, .step = 101}));
  EXPECT_FALSE(lineage.contains({.attempt = 2, .step = 50}));
  EXPECT_FALSE(lineage.contains({.attempt = 6, .step = 1}));
}

TEST_F(Rule4Retention, NewerFormatsAndUnknownNamesAreLeftAlone) {
  {
    Life life(disk, {.keep = KeepLast{100}});
    life.start();
    for (const std::int64_t step : {10, 30}) life.round(step);
  }
  put_toy(disk, {.version = 2, .step = 20, .attempt = 1});
  disk.put(in_run("step-000000000005-a0001.h5.bak"), "x");
  disk.put(in_run("step-5.h5"), "x");
  disk.put(in_run("notes.txt"), "x");
  disk.put(in_run("lost+found/x"), "x");
  Life life(disk, {.keep = KeepLast{2}});
  life.start();
  for (const std::int64_t step : {40, 50, 60}) life.round(step);
  const auto names = disk.names(kRun);
  for (const std::string& name :
       {name_of_step(20, 1), std::string("step-000000000005-a0001.h5.bak"), std::string("step-5.h5"),
        std::string("notes.txt"), std::string("lost+found")}) {
    EXPECT_THAT(names, Contains(name));
  }
  EXPECT_THAT(names, testing::Not(Contains(name_of_step(10, 1))));
}

TEST_F(Rule4Retention, AnUnreadableFileStopsNeitherTheRunNorTheDeletionOfOthers) {
  {
    Life life(disk, {.keep = KeepLast{100}});
    life.start();
    for (const std::int64_t step : {10, 20, 30}) life.round(step);
  }
  FaultFileSystem files(disk);
  Life life(files, {.keep = KeepLast{2}});
  life.start();
  life.save(40);
  files.fail(Op::read, 1, EIO);
  life.store.apply_retention();
  EXPECT_THAT(checkpoints(disk), ElementsAre(name_of_step(10, 1), name_of_step(30, 1), name_of_step(40, 2)));
  life.round(50);
  EXPECT_THAT(checkpoints(disk), ElementsAre(name_of_step(10, 1), name_of_step(40, 2), name_of_step(50, 2)));
}

TEST_F(Rule4Retention, AFileThatStaysUnreadableDoesNotEndRetention) {
  for (const Retention& keep : {Retention(KeepLast{2}), KeepLast{2} | Retention(KeepBest{})}) {
    disk = MemoryFileSystem();
    {
      Life life(disk, {.keep = KeepLast{100}});
      life.start();
      for (const std::int64_t step : {10, 20, 30}) life.round(step);
    }
    FaultFileSystem files(disk);
    files.set_hook([](const Operation& operation) {
      if (operation.kind != Op::read || !operation.path.ends_with(name_of_step(20, 1))) return;
      throw IoError("read", operation.path, EIO, "a bad sector");
    });
    Life life(files, {.keep = keep});
    life.start();
    for (const std::int64_t step : {40, 50, 60}) life.round(step, false);
    // The newest finite one, 30, stays as well.
    EXPECT_THAT(checkpoints(disk), ElementsAre(name_of_step(20, 1), name_of_step(30, 1), name_of_step(50, 2),
                                               name_of_step(60, 2)));
  }
}

TEST_F(Rule4Retention, LooksForNewerClaimsBeforeEveryUnlink) {
  {
    Life life(disk, {.keep = KeepLast{100}});
    life.start();
    for (const std::int64_t step : {10, 20, 30, 40}) life.round(step);
  }
  FaultFileSystem files(disk);
  Life life(files, {.keep = KeepLast{2}});
  life.start();
  life.save(50);
  int unlinks = 0;
  files.set_hook([&](const Operation& operation) {
    if (operation.kind == Op::unlink && ++unlinks == 1) Life(disk).store.claim();
  });
  EXPECT_THROW(life.store.apply_retention(), SupersededError);
  EXPECT_EQ(unlinks, 1);
}

TEST_F(Rule4Retention, TheLastGoodPastIsReadAgainFromTheDevice) {
  {
    Life life(disk, {.keep = KeepLast{100}});
    life.start();
    for (const std::int64_t step : {10, 20}) life.round(step);
  }
  Life life(disk, {.keep = KeepLast{2}});
  life.start();
  life.save(30, false);
  life.verifier.asked.clear();
  life.store.apply_retention();
  int looks = 0;
  for (const ToyVerifier::Question& question : life.verifier.asked) {
    if (question.step != 20 || question.depth != Verifier::Depth::full) continue;
    ++looks;
    EXPECT_TRUE(question.uncached);
  }
  EXPECT_EQ(looks, 1);
}

// A bad page of the page cache says nothing about the only good past there is.
TEST_F(Rule4Retention, ABadReadCostsNoGoodPast) {
  {
    Life life(disk, {.keep = KeepLast{2}});
    life.start();
    for (const std::int64_t step : {10, 20, 30, 40}) life.round(step, step == 10);
  }
  Life life(disk, {.keep = KeepLast{2}});
  life.start();
  life.verifier.answer = [](const ToyVerifier::Question& question) -> std::optional<Verdict> {
    if (question.step != 10 || question.uncached) return std::nullopt;
    return Verdict{.kind = Verdict::Kind::damaged, .reason = "a bad page"};
  };
  life.round(50, false);
  EXPECT_THAT(checkpoints(disk), ElementsAre(name_of_step(10, 1), name_of_step(40, 1), name_of_step(50, 2)));
}

}}  // namespace holdfast::test
