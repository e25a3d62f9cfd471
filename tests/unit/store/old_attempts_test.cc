// Rule 6 of store/commit.h in the long run: what attempts that are over leave behind does not pile up, and
// nothing that counts goes with it.
#include "holdfast/store/internal/old_attempts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "holdfast/base/error.h"
#include "support/fault_file_system.h"
#include "support/store_life.h"

namespace holdfast::test { namespace {

using testing::Contains;
using testing::IsEmpty;
using testing::IsSupersetOf;
using testing::Not;
using testing::UnorderedElementsAre;

const StoreOptions kTwo = {.keep = KeepLast{2}, .attempts_kept = 2};

class Rule6OldAttempts : public testing::Test {
 public:
  // A life of one save.
  void live(std::int64_t step) {
    Life life(disk, kTwo);
    life.start();
    life.round(step);
  }
  std::vector<std::string> small_files() const {
    std::vector<std::string> found = disk.names(kRun / "attempts");
    for (const std::string& name : disk.names(kRun)) {
      if (name.starts_with("ledger-")) found.push_back(name);
    }
    return found;
  }

  MemoryFileSystem disk;
};

TEST_F(Rule6OldAttempts, AreForgottenByLaterStarts) {
  for (std::int64_t step = 1; step <= 6; ++step) live(step);
  EXPECT_THAT(small_files(),
              UnorderedElementsAre("5", "6", "5.state.json", "6.state.json",
                                   "ledger-a0004.jsonl",  // its checkpoint was there at the start
                                   "ledger-a0005.jsonl", "ledger-a0006.jsonl"));
  Life next(disk, kTwo);
  EXPECT_EQ(next.start().newest->step, 6);
  EXPECT_EQ(next.store.attempt(), 7U);
}

// What a wrapper has kept of a hang is no claim, and goes with the claim of its attempt.
TEST_F(Rule6OldAttempts, TakeTheEvidenceOfTheirStallsWithThem) {
  live(1);
  const auto attempts = disk.open_directory(kRun, false)->open_directory("attempts", false);
  attempts->open("1.stall.txt", OpenMode::create);
  attempts->open("900.stall.txt", OpenMode::create);
  live(2);
  EXPECT_THAT(small_files(), IsSupersetOf({"1", "2", "1.stall.txt"})) << "the next number is 2";
  live(3);
  EXPECT_THAT(small_files(), Not(Contains("1.stall.txt")));
}

TEST_F(Rule6OldAttempts, StayWhereThereAreFewerThanAHundred) {
  for (int i = 0; i < 100; ++i) {
    Life life(disk);
    life.start();
  }
  EXPECT_THAT(disk.names(kRun / "attempts"), IsSupersetOf({"1", "100"}));
  Life life(disk);
  life.start();
  EXPECT_THAT(disk.names(kRun / "attempts"), Not(Contains("1")));
  EXPECT_THAT(disk.names(kRun / "attempts"), IsSupersetOf({"2", "101"}));
}

// A crash loop commits nothing; the record that something was committed must outlive it.
TEST_F(Rule6OldAttempts, ARecordedCommitStaysRecorded) {
  live(1);
  disk.open_directory(kRun, false)->unlink(name_of_step(1, 1));
  disk.open_directory(kRun, false)->unlink("RUN_STATE.json");
  for (int i = 0; i < 5; ++i) {
    StoreOptions options = kTwo;
    options.allow_fresh = true;
    Life life(disk, options);
    life.start();
  }
  EXPECT_THAT(disk.names(kRun / "attempts"), UnorderedElementsAre("5", "6", "1.state.json"));
  EXPECT_THROW(Life(disk, kTwo).store.preflight(), RefusedError);
}

TEST_F(Rule6OldAttempts, TheLedgerOfACheckpointThatIsKeptStays) {
  {
    Life life(disk, {.keep = KeepLast{2} | KeepEvery{100}});
    life.start();
    life.round(100);
  }
  for (std::int64_t step = 101; step < 107; ++step) {
    Life life(disk, {.keep = KeepLast{2} | KeepEvery{100}, .attempts_kept = 2});
    life.start();
    life.round(step);
  }
  EXPECT_THAT(disk.names(kRun), Contains(name_of_step(100, 1)));
  EXPECT_THAT(disk.names(kRun), Contains("ledger-a0001.jsonl"));
  EXPECT_THAT(disk.names(kRun), Not(Contains("ledger-a0002.jsonl")));
}

TEST_F(Rule6OldAttempts, OnlyPlainFilesOfOursGo) {
  live(1);
  disk.put(kRun / "attempts/notes.txt", "x");
  disk.put(kRun / "attempts/01", "x");
  disk.put(kRun / "ledger-a1.jsonl", "x");
  for (std::int64_t step = 2; step <= 6; ++step) live(step);
  EXPECT_THAT(disk.names(kRun / "attempts"), IsSupersetOf({"notes.txt", "01"}));
  EXPECT_THAT(disk.names(kRun), Contains("ledger-a1.jsonl"));
}

TEST_F(Rule6OldAttempts, ALongBacklogGoesInParts) {
  live(1);
  for (int i = 2; i <= 1000; ++i) disk.put(kRun / ("attempts/" + std::to_string(i)), "");
  live(2);
  EXPECT_EQ(disk.names(kRun / "attempts").size(), 1 + 1000 + 1 + 1 - 300U);
  for (std::int64_t step = 3; step < 8; ++step) live(step);
  EXPECT_LE(disk.names(kRun / "attempts").size(), 4U);
  Life life(disk, kTwo);
  life.start();
  EXPECT_EQ(life.store.attempt(), 1007U);
}

// Tidiness stops no start.
TEST_F(Rule6OldAttempts, AVolumeThatRefusesCostsNothing) {
  for (std::int64_t step = 1; step <= 4; ++step) live(step);
  FaultFileSystem files(disk);
  files.fail(Op::unlink, 1, EIO, {.for_ever = true});
  Life life(files, kTwo);
  EXPECT_EQ(life.start().newest->step, 4);
  life.save(5);
}

TEST_F(Rule6OldAttempts, ANewerClaimIsSeenBeforeEachRemoval) {
  for (std::int64_t step = 1; step <= 4; ++step) live(step);
  FaultFileSystem files(disk);
  Life life(files, kTwo);
  files.set_hook([&](const Operation& operation) {
    // Just before the look that precedes a removal.
    if (operation.kind == Op::list && files.count(Op::unlink) == 1) disk.put(kRun / "attempts/9", "");
  });
  EXPECT_THROW(life.start(), SupersededError);
  EXPECT_EQ(files.count(Op::unlink), 1);
}

// A long life remembers what is there, not all that it ever wrote.
TEST_F(Rule6OldAttempts, AnOlderStepThatComesAgainIsNotWrittenTwice) {
  Life life(disk, {.keep = KeepLast{40}});
  life.start();
  for (std::int64_t step = 1; step <= 30; ++step) life.round(step);
  const auto before = disk.get(in_run(name_of_step(1, 1)));
  EXPECT_FALSE(life.store.holds(1));
  EXPECT_TRUE(life.store.holds(30));
  EXPECT_EQ(life.save(1).name, name_of_step(1, 1));
  EXPECT_EQ(disk.get(in_run(name_of_step(1, 1))), before);
  EXPECT_EQ(checkpoints(disk).size(), 30U);
}

}}  // namespace holdfast::test
