// Rules 5, 7 and 8: which checkpoint a start begins with, and what it refuses.
#include "holdfast/store/recovery.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "holdfast/base/error.h"
#include "support/fault_file_system.h"
#include "support/store_life.h"

namespace holdfast::test { namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class RecoveryTest : public testing::Test {
 public:
  // A first attempt that saved these steps.
  void history(std::initializer_list<std::int64_t> steps) {
    Life life(disk, {.keep = KeepLast{100}});
    life.start();
    for (const std::int64_t step : steps) life.save(step);
  }
  Selection look(StoreOptions options = {}) { return Life(disk, std::move(options)).store.preflight(); }
  std::string refusal(StoreOptions options = {}) {
    try {
      look(std::move(options));
    } catch (const RefusedError& error) {
      EXPECT_EQ(static_cast<int>(error.exit_code()), 78);
      return error.what();
    }
    ADD_FAILURE() << "not refused";
    return {};
  }

  MemoryFileSystem disk;
};
using Rule5Recovery = RecoveryTest;
using Rule7Held = RecoveryTest;
using Rule8Links = RecoveryTest;
using StartingPointTest = RecoveryTest;

TEST_F(Rule5Recovery, NewestByAttemptThenStep) {
  history({100, 900});
  put_toy(disk, {.step = 300, .attempt = 4});
  put_toy(disk, {.step = 200, .attempt = 4});
  put_toy(disk, {.step = 5000, .attempt = 3});
  EXPECT_EQ(look().newest->name, name_of_step(300, 4));
}

TEST_F(Rule5Recovery, TheContentIsToldNotTheName) {
  put_toy(disk, {.step = 300, .attempt = 4, .ancestry = {{1, 100}, {3, 250}}, .finite = false});
  const CheckpointInfo found = *look().newest;
  EXPECT_EQ(found.step, 300);
  EXPECT_EQ(found.attempt, 4u);
  EXPECT_EQ(found.ancestry, (Ancestry{{1, 100}, {3, 250}}));
  EXPECT_FALSE(found.finite);
  EXPECT_EQ(found.bytes, 2 * kToyBlock);
}

TEST_F(Rule5Recovery, DamagedAndShortFilesAreSteppedPastAndNamed) {
  history({100, 200, 300, 400, 500});
  rot(disk, name_of_step(500, 1));
  disk.flip_bit(in_run(name_of_step(400, 1)), 7);
  auto bytes = disk.get(in_run(name_of_step(300, 1)));
  bytes.resize(bytes.size() - 1);
  disk.put(in_run(name_of_step(300, 1)), bytes);
  const Selection found = look();
  EXPECT_EQ(found.newest->step, 200);
  ASSERT_EQ(found.skipped.size(), 3u);
  EXPECT_EQ(found.skipped[0].name, name_of_step(500, 1));
  EXPECT_THAT(found.skipped[0].reason, HasSubstr("body"));
  EXPECT_THAT(found.skipped[1].reason, HasSubstr("head"));
  EXPECT_THAT(found.skipped[2].reason, HasSubstr("length"));
}

TEST_F(Rule5Recovery, DamageIsBelievedAfterTwoUncachedLooks) {
  history({100, 200});
  rot(disk, name_of_step(200, 1));
  Life life(disk);
  EXPECT_EQ(life.store.preflight().newest->step, 100);
  std::vector<bool> uncached;
  for (const auto& question : life.verifier.asked) {
    if (question.step == 200) uncached.push_back(question.uncached);
  }
  EXPECT_THAT(uncached, ElementsAre(false, true, true));
  life.verifier.asked.clear();
  life.store.claim();
  EXPECT_EQ(life.store.recover().newest->step, 100);
  for (const auto& question : life.verifier.asked) EXPECT_NE(question.step, 200) << "read again in vain";
}

TEST_F(Rule5Recovery, AMemoryFaultIsNotDamage) {
  history({100, 200});
  for (const int good_at : {2, 3}) {
    Life life(disk);
    int looks = 0;
    life.verifier.answer = [&](const ToyVerifier::Question& question) -> std::optional<Verdict> {
      if (question.step != 200 || ++looks >= good_at) return std::nullopt;
      return Verdict{.kind = Verdict::Kind::damaged, .reason = "once"};
    };
    EXPECT_EQ(life.store.preflight().newest->step, 200) << good_at;
  }
}

TEST_F(Rule5Recovery, AFullLookDecides) {
  history({100});
  Life life(disk);
  life.store.preflight();
  ASSERT_EQ(life.verifier.asked.size(), 1u);
  EXPECT_EQ(life.verifier.asked[0].depth, Verifier::Depth::full);
  EXPECT_FALSE(life.verifier.asked[0].uncached);
}

TEST_F(Rule5Recovery, WhatTheSystemRefusesIsNotDamage) {
  history({100, 200});
  for (const int code : {EIO, ESTALE, EACCES, ENOMEM, EMFILE}) {
    for (const Op op : {Op::open_read, Op::read, Op::list, Op::status}) {
      for (int nth = 1;; ++nth) {
        FaultFileSystem files(disk);
        files.fail(op, nth, code);
        Life life(files, {.allow_fresh = true});
        const auto before = disk.names(kRun);
        int refused = 0;
        try {
          EXPECT_EQ(life.store.preflight().newest->step, 200);
        } catch (const IoError& error) {
          refused = error.code();
          EXPECT_EQ(static_cast<int>(error.exit_code()), 74);
        }
        EXPECT_EQ(disk.names(kRun), before);
        if (files.faults_fired() == 0) break;
        // One EIO of a file may pass: the next look decides.
        const bool of_a_file = op == Op::open_read || op == Op::read || files.log().back().path != kRun;
        if (code == EIO && refused == 0 && of_a_file) continue;
        EXPECT_EQ(refused, code) << name_of(op) << ' ' << nth << " failed, and recovery went on";
      }
    }
  }
}

TEST_F(Rule5Recovery, ADamagedVersionFieldIsDamageNotNewer) {
  history({100, 200});
  disk.flip_bit(in_run(name_of_step(200, 1)), 4, 1);  // "TOY 1" becomes "TOY 3", without its checksum
  EXPECT_EQ(look().newest->step, 100);
}

TEST_F(Rule5Recovery, ANewerFormatAtTheTopIsRefused) {
  history({100});
  put_toy(disk, {.version = 2, .step = 200, .attempt = 1});
  EXPECT_THAT(refusal(), AllOf(HasSubstr(name_of_step(200, 1)), HasSubstr("version 2")));
  EXPECT_THAT(refusal({.allow_fresh = true}), HasSubstr(name_of_step(200, 1)));
  put_toy(disk, {.step = 300, .attempt = 1});
  rot(disk, name_of_step(300, 1));
  EXPECT_THAT(refusal(), HasSubstr(name_of_step(200, 1))) << "above the newest good one, below a damaged one";
  put_toy(disk, {.step = 400, .attempt = 1});
  EXPECT_EQ(look().newest->step, 400) << "below the newest good one nobody asks";
}

TEST_F(Rule5Recovery, AFileUnderAnotherNameIsSteppedPastAndKept) {
  history({100, 200});
  const auto old = disk.get(in_run(name_of_step(100, 1)));
  disk.put(in_run(name_of_step(900, 1)), old);
  for (const AttemptNumber attempt : {3, 4, 5, 6}) disk.put(in_run(name_of_step(1, attempt)), old);
  Life life(disk);
  const Selection found = life.start();
  EXPECT_EQ(found.newest->step, 200);
  ASSERT_EQ(found.skipped.size(), 5u);
  EXPECT_THAT(found.skipped.back().reason, HasSubstr("holds step 100 of attempt 1"));
  life.round(300);
  life.round(400);
  life.round(500);
  EXPECT_TRUE(disk.exists(in_run(name_of_step(900, 1)))) << "its bytes may be somebody's only copy";
  EXPECT_TRUE(disk.exists(in_run(name_of_step(1, 6))));
}

TEST_F(Rule5Recovery, NothingIsMovedBeforeTheFirstAcknowledgement) {
  history({100, 200});
  rot(disk, name_of_step(200, 1));
  Life life(disk);
  life.start();
  life.store.write_run_state({});
  life.store.apply_retention();
  EXPECT_TRUE(disk.exists(in_run(name_of_step(200, 1))));
  life.save(110);
  EXPECT_TRUE(disk.exists(in_run(name_of_step(200, 1))));
  life.store.apply_retention();
  EXPECT_FALSE(disk.exists(in_run(name_of_step(200, 1))));
  EXPECT_TRUE(disk.exists(in_run(name_of_step(200, 1) + ".damaged")));
}

TEST_F(Rule5Recovery, AtMostTwoDamagedFilesAreKept) {
  history({100, 200, 300, 400, 500});
  for (const std::int64_t step : {300, 400, 500}) rot(disk, name_of_step(step, 1));
  Life life(disk);
  EXPECT_EQ(life.start().newest->step, 200);
  life.round(210);
  EXPECT_THAT(checkpoints(disk),
              ElementsAre(name_of_step(100, 1), name_of_step(200, 1), name_of_step(210, 2),
                          name_of_step(400, 1) + ".damaged", name_of_step(500, 1) + ".damaged"));
}

TEST_F(Rule5Recovery, AFileThatWasNotFoundDamagedIsNotDeletedToFreeItsName) {
  history({100, 200, 300, 400, 500});
  for (const std::int64_t step : {400, 500}) rot(disk, name_of_step(step, 1));
  const auto damaged = [](std::int64_t step) { return name_of_step(step, 1) + ".damaged"; };
  for (const std::int64_t step : {200, 300, 400}) disk.put(in_run(damaged(step)), "an earlier one");
  const auto good = disk.get(in_run(name_of_step(200, 1)));
  Life life(disk);
  EXPECT_EQ(life.start().newest->step, 300);
  EXPECT_EQ(life.store.set_aside({.attempt = 1, .step = 200}, false), damaged(200) + "-2");
  EXPECT_EQ(life.store.set_aside({.attempt = 1, .step = 300}, true), "") << "the caller knows";
  EXPECT_EQ(life.store.set_aside({.attempt = 1, .step = 400}, false), "") << "recovery knows";
  EXPECT_EQ(life.store.set_aside({.attempt = 1, .step = 500}, false), damaged(500));
  EXPECT_EQ(life.store.set_aside({.attempt = 1, .step = 500}, false), "") << "there is no such file";
  EXPECT_THAT(checkpoints(disk), ElementsAre(name_of_step(100, 1), damaged(200), damaged(200) + "-2",
                                             damaged(300), damaged(400), damaged(500)));
  EXPECT_EQ(disk.get(in_run(damaged(200) + "-2")), good);
  life.round(510);
  EXPECT_THAT(checkpoints(disk), Contains(damaged(200) + "-2")) << "not one of the two that are kept";
}

TEST_F(Rule5Recovery, TheCopyOfADamagedFileIsNotMovedInItsPlace) {
  history({100, 200, 300});
  rot(disk, name_of_step(300, 1));
  Life life(disk);
  EXPECT_EQ(life.start().newest->step, 200);
  EXPECT_EQ(life.store.set_aside({.attempt = 1, .step = 300}, false), name_of_step(300, 1) + ".damaged");
  CommitRequest copy = toy_request({.step = 300, .attempt = 1});
  copy.copy_of = FileId{.attempt = 1, .step = 300};
  life.store.commit(copy);
  EXPECT_TRUE(disk.open_directory(kRun, false)->unlink(name_of_step(300, 1) + ".damaged"));
  life.store.apply_retention();
  EXPECT_THAT(checkpoints(disk), Contains(name_of_step(300, 1)));
}

TEST_F(Rule5Recovery, WhereNothingVerifiesNothingIsMovedOrDeleted) {
  // The fault may be the machine's: a start over must not cost the files.
  history({100, 200, 300, 400});
  for (const std::int64_t step : {100, 200, 300, 400}) rot(disk, name_of_step(step, 1));
  Life life(disk, {.allow_fresh = true});
  EXPECT_FALSE(life.start().newest);
  for (const std::int64_t step : {10, 20, 30, 40, 50}) life.round(step);
  EXPECT_THAT(checkpoints(disk),
              ElementsAre(name_of_step(30, 2), name_of_step(40, 2), name_of_step(50, 2), name_of_step(100, 1),
                          name_of_step(200, 1), name_of_step(300, 1), name_of_step(400, 1)));
}

TEST_F(Rule5Recovery, TemporaryFilesAreNeverRead) {
  history({100});
  disk.put(in_run("tmp-a0001-step-900-1"), toy_bytes({.step = 900, .attempt = 1}));
  EXPECT_EQ(look().newest->step, 100);
}

TEST_F(Rule5Recovery, AFileThatVanishesMeanwhileMakesTheListStale) {
  history({100, 200, 300});
  FaultFileSystem files(disk);
  // The running attempt's retention deletes 300 as it commits 400.
  files.set_hook([&, once = true](const Operation& operation) mutable {
    if (operation.kind != Op::open_read || !std::exchange(once, false)) return;
    disk.open_directory(kRun, false)->unlink(name_of_step(300, 1));
    put_toy(disk, {.step = 400, .attempt = 1});
  });
  Life life(files);
  const Selection found = life.store.preflight();
  EXPECT_EQ(found.newest->step, 400);
  EXPECT_THAT(found.skipped, IsEmpty());
}

TEST_F(Rule5Recovery, LookingChangesNothing) {
  history({100, 200});
  rot(disk, name_of_step(200, 1));
  disk.put(in_run("tmp-a0001-old"), "x");
  FaultFileSystem files(disk);
  Life life(files);
  life.store.preflight();
  EXPECT_EQ(life.store.list().size(), 2u);
  EXPECT_THAT(files.mutations(), IsEmpty());
}

TEST_F(Rule7Held, AnEmptyOrMissingDirectoryIsAFreshStart) {
  EXPECT_FALSE(look().newest);
  EXPECT_FALSE(disk.exists(kRun)) << "looking made it";
  disk.open_directory(kRun, true);
  EXPECT_FALSE(look().newest);
}

TEST_F(Rule7Held, ClaimsAndTemporaryFilesAloneAreAFreshStart) {
  Life life(disk);
  life.start();
  life.store.write_run_state({});
  life.store.append_ledger("{}");
  disk.put(in_run("tmp-a0001-step-900-1"), "x");
  disk.put(in_run("lost+found/x"), "x");
  disk.put(in_run("notes.txt"), "x");
  EXPECT_FALSE(look().newest);
}

TEST_F(Rule7Held, NothingVerifiesIsRefused) {
  history({100});
  rot(disk, name_of_step(100, 1));
  EXPECT_THAT(refusal(), AllOf(HasSubstr(name_of_step(100, 1)), HasSubstr("body is damaged"),
                               HasSubstr("--allow-fresh")));
  EXPECT_FALSE(look({.allow_fresh = true}).newest);
  EXPECT_EQ(look({.allow_fresh = true}).skipped.size(), 1u);
}

TEST_F(Rule7Held, DamagedNamesAndOddStepNamesCount) {
  disk.put(in_run(name_of_step(100, 1) + ".damaged"), "x");
  EXPECT_THAT(refusal(), HasSubstr(".damaged"));
  MemoryFileSystem other;
  other.put(in_run("step-100.h5"), "x");
  EXPECT_THROW(Life(other).store.preflight(), RefusedError);
}

TEST_F(Rule7Held, ARecordedCommitCounts) {
  {
    Life life(disk);
    life.start();
    life.round(100);
  }
  const auto run = disk.open_directory(kRun, false);
  run->unlink(name_of_step(100, 1));
  EXPECT_THAT(refusal(), AllOf(HasSubstr("records step 100"), HasSubstr("right volume")));
  run->unlink(kRunStateName);
  EXPECT_THAT(refusal(), HasSubstr("1.state.json"));
  EXPECT_FALSE(look({.allow_fresh = true}).newest);
}

// A standby, or a second start, that looks while the run makes its first commit.
TEST_F(Rule7Held, ACommitAfterTheListIsFoundByTheNext) {
  Life holder(disk);
  holder.start();
  FaultFileSystem files(disk);
  files.set_hook([&, once = true](const Operation& operation) mutable {
    const bool reads_state = operation.kind == Op::status && operation.path.ends_with("RUN_STATE.json");
    if (reads_state && std::exchange(once, false)) holder.round(10);
  });
  const auto newest = Life(files).store.preflight().newest;
  ASSERT_TRUE(newest);
  EXPECT_EQ(newest->step, 10);
}

TEST_F(Rule7Held, ARefusalComesBeforeTheClaim) {
  history({100});
  rot(disk, name_of_step(100, 1));
  refusal();
  EXPECT_EQ(disk.names(kRun / "attempts"), std::vector<std::string>{"1"});
}

TEST_F(Rule8Links, LinksAndDirectoriesUnderACheckpointsNameAreSteppedPast) {
  history({100});
  disk.link(in_run(name_of_step(900, 1)));
  disk.put(in_run(name_of_step(800, 1)) / "inside", "x");
  const Selection found = look();
  EXPECT_EQ(found.newest->step, 100);
  ASSERT_EQ(found.skipped.size(), 2u);
  EXPECT_THAT(found.skipped[0].reason, HasSubstr("symbolic link"));
  EXPECT_THAT(found.skipped[1].reason, HasSubstr("directory"));
  EXPECT_THAT(refusal({.start = {.file = name_of_step(900, 1)}}), HasSubstr("symbolic link"));
  Life life(disk, {.keep = KeepLast{2}});
  life.start();
  for (const std::int64_t step : {110, 120, 130}) life.round(step);
  EXPECT_THAT(disk.names(kRun), AllOf(Contains(name_of_step(900, 1)), Contains(name_of_step(800, 1))));
}

TEST_F(Rule8Links, OneAloneIsRefused) {
  disk.link(in_run(name_of_step(900, 1)));
  EXPECT_THAT(refusal(), HasSubstr("symbolic link"));
}

TEST_F(Rule8Links, AttemptsThatLeadElsewhereAreRefusedBeforeTheClaim) {
  disk.link(in_run("attempts"));
  EXPECT_THAT(refusal(), HasSubstr("attempts is a symbolic link"));
  EXPECT_THROW(Life(disk).store.claim(), RefusedError);
  MemoryFileSystem other;
  other.put(in_run("attempts"), "x");
  EXPECT_THROW(Life(other).store.preflight(), RefusedError);
}

TEST_F(Rule8Links, LinksInPlaceOfSmallFilesAreNotFollowed) {
  history({100});
  disk.link(in_run(kRunStateName));
  disk.link(in_run("ledger-a0001.jsonl"));
  disk.link(in_run("ledger-a0002.jsonl"));
  Life life(disk);
  life.start();
  life.store.append_ledger("{}");  // said in the log, never thrown
  life.round(200);
  EXPECT_EQ(life.store.list().size(), 2u);
}

TEST_F(StartingPointTest, AStepMeansTheNewestAttemptsFile) {
  history({100, 200, 300});
  put_toy(disk, {.step = 200, .attempt = 7});
  EXPECT_EQ(look({.start = {.step = 200}}).newest->attempt, 7u);
  EXPECT_EQ(look({.start = {.step = 100}}).newest->attempt, 1u);
  EXPECT_THAT(refusal({.start = {.step = 150}}), HasSubstr("no checkpoint of step 150"));
}

TEST_F(StartingPointTest, AFileMayHaveAnyName) {
  history({100, 200});
  disk.put(in_run("good.h5"), toy_bytes({.step = 150, .attempt = 1, .ancestry = {}}));
  EXPECT_EQ(look({.start = {.file = "good.h5"}}).newest->step, 150);
  EXPECT_EQ(look({.start = {.file = name_of_step(100, 1)}}).newest->step, 100);
  EXPECT_THAT(refusal({.start = {.file = "bad.h5"}}), HasSubstr("does not exist"));
}

TEST_F(StartingPointTest, TheChosenOneMustVerify) {
  history({100, 200, 300});
  rot(disk, name_of_step(200, 1));
  EXPECT_THAT(refusal({.allow_fresh = true, .start = {.step = 200}}),
              AllOf(HasSubstr(name_of_step(200, 1)), HasSubstr("body is damaged")));
  put_toy(disk, {.version = 9, .step = 250, .attempt = 1});
  EXPECT_THAT(refusal({.start = {.step = 250}}), HasSubstr("version 9"));
  disk.put(in_run(name_of_step(260, 1)), toy_bytes({.step = 100, .attempt = 1}));
  EXPECT_THAT(refusal({.start = {.step = 260}}), HasSubstr("not what its name says"));
}

TEST_F(StartingPointTest, NeedsADirectory) {
  EXPECT_THAT(refusal({.start = {.step = 5}}), HasSubstr("does not exist"));
  EXPECT_THROW(look({.start = {.step = 5, .file = "x"}}), UsageError);
}

TEST_F(StartingPointTest, ABranchLeavesNewerFilesAlone) {
  history({100, 200, 300});
  rot(disk, name_of_step(300, 1));
  Life life(disk, {.start = {.step = 100}, .keep = KeepLast{2}});
  life.start();
  for (const std::int64_t step : {110, 120, 130, 140}) life.round(step);
  EXPECT_THAT(checkpoints(disk), ElementsAre(name_of_step(130, 2), name_of_step(140, 2), name_of_step(200, 1),
                                             name_of_step(300, 1)));
  EXPECT_EQ(look().newest->step, 140) << "the branch is where the next start goes on";
}

// No memory to look at a file says nothing about it.
TEST_F(Rule5Recovery, NoMemoryIsNoDamage) {
  put_toy(disk, {.step = 10, .attempt = 1});
  put_toy(disk, {.step = 20, .attempt = 1});
  const auto names = disk.names(kRun);
  using Answer = std::function<std::optional<Verdict>(const ToyVerifier::Question&)>;
  const Answer answers[] = {
      [](const ToyVerifier::Question&) -> std::optional<Verdict> { throw std::bad_alloc(); },
      [](const ToyVerifier::Question&) -> std::optional<Verdict> { throw RefusedError("no room for 2 GB"); }};
  for (const Answer& answer : answers) {
    Life life(disk);
    life.verifier.answer = answer;
    try {
      life.store.preflight();
      ADD_FAILURE() << "went on";
    } catch (const IoError& error) {
      EXPECT_EQ(error.code(), ENOMEM);
      EXPECT_EQ(static_cast<int>(error.exit_code()), 74);
    }
    EXPECT_EQ(disk.names(kRun), names);
  }
  Life life(disk);
  EXPECT_EQ(life.start().newest->step, 20);
}

}}  // namespace holdfast::test
