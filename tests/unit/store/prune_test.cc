// Retention by hand, where nobody trains: what goes, what it leaves alone, whom it fences off, and a power
// cut and a failure at every operation of it.
#include "holdfast/store/prune.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <set>

#include "holdfast/base/error.h"
#include "holdfast/store/attempt.h"
#include "support/fault_file_system.h"
#include "support/store_life.h"

namespace holdfast::test { namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Fate = RetentionReport::Fate;

RunState ended(RunPhase phase, std::int64_t step, int exit_code = 0) {
  return {.phase = phase,
          .step = step,
          .durable_step = step,
          .checkpoint = name_of_step(step, 1),
          .exit_code = exit_code,
          .host = "spot-17",
          .time = "2026-01-02T03:04:05Z"};
}

class Prune : public testing::Test {
 public:
  // A run of five checkpoints that has come to its end.
  void train(RunPhase phase = RunPhase::complete) {
    Life life(disk, {.keep = KeepLast{100}});
    life.start();
    for (const std::int64_t step : {10, 20, 30, 40, 50}) life.round(step, step != 50);
    life.store.write_run_state(ended(phase, 50));
  }
  PruneResult prune(PruneOptions options = {}) { return prune(disk, std::move(options)); }
  PruneResult prune(FileSystem& files, PruneOptions options = {}) {
    options.directory = kRun;
    if (options.keep.last() == 3) options.keep = KeepLast{2};
    FakeClock clock;
    ToyVerifier verifier;
    return holdfast::prune(files, clock, verifier, options);
  }
  std::string refusal(PruneOptions options = {}) {
    try {
      prune(std::move(options));
    } catch (const RefusedError& error) {
      return error.what();
    }
    return "not refused";
  }
  static std::map<std::string, Fate> fates(const PruneResult& result) {
    std::map<std::string, Fate> all;
    for (const auto& file : result.report.files) all[file.name] = file.fate;
    return all;
  }
  static std::string reason(const PruneResult& result, const std::string& name) {
    for (const auto& file : result.report.files) {
      if (file.name == name) return file.reason;
    }
    return "not told";
  }
  std::optional<RunState> state() {
    const auto run = disk.open_directory(kRun, false);
    return last_word(*run).state;
  }
  MemoryFileSystem disk;
};

TEST_F(Prune, DeletesWhatNoPolicyWants) {
  train();
  const PruneResult result = prune();
  EXPECT_THAT(checkpoints(disk), ElementsAre(name_of_step(40, 1), name_of_step(50, 1)));
  EXPECT_EQ(result.attempt, 2u);
  EXPECT_EQ(result.report.bytes_that_go(), 3 * 2 * kToyBlock);
  EXPECT_THAT(reason(result, name_of_step(50, 1)), HasSubstr("last 2"));
}

TEST_F(Prune, ADryRunChangesNothing) {
  train();
  disk.put(in_run("tmp-a0001-step-60-1"), "x");
  FaultFileSystem files(disk);
  const PruneResult result = prune(files, {.dry_run = true});
  EXPECT_EQ(files.mutation_count(), 0);
  EXPECT_EQ(result.attempt, 0u);
  EXPECT_EQ(fates(result).at(name_of_step(30, 1)), Fate::goes);
  EXPECT_EQ(fates(result).at("tmp-a0001-step-60-1"), Fate::goes);
}

TEST_F(Prune, WhereNothingGoesNothingIsClaimed) {
  train();
  FaultFileSystem files(disk);
  EXPECT_EQ(prune(files, {.keep = KeepLast{5}}).attempt, 0u);
  EXPECT_EQ(files.mutation_count(), 0);
}

TEST_F(Prune, HalfWrittenFilesOfOlderAttemptsGo) {
  train();
  disk.put(in_run("tmp-a0001-step-60-1"), "1234567");
  const PruneResult result = prune({.keep = KeepLast{5}});
  EXPECT_EQ(result.report.bytes_that_go(), 7u);
  EXPECT_FALSE(disk.exists(in_run("tmp-a0001-step-60-1")));
}

TEST_F(Prune, LeavesAloneWhatIsNotItsOwn) {
  train();
  put_toy(disk, {.version = 2, .step = 15, .attempt = 1});
  disk.put(in_run("step-000000000005-a0001.h5.damaged"), "x");
  disk.put(in_run("notes.txt"), "x");
  {
    Life branch(disk, {.start = {.step = 20}, .keep = KeepLast{100}});
    branch.start();
    branch.round(25);
    branch.round(35);
    branch.store.write_run_state(ended(RunPhase::interrupted, 35, 75));
  }
  const PruneResult result = prune();
  EXPECT_THAT(checkpoints(disk), ElementsAre("step-000000000005-a0001.h5.damaged", name_of_step(15, 1),
                                             name_of_step(25, 2), name_of_step(30, 1), name_of_step(35, 2),
                                             name_of_step(40, 1), name_of_step(50, 1)));
  EXPECT_THAT(reason(result, name_of_step(40, 1)), HasSubstr("another history"));
  EXPECT_THAT(reason(result, name_of_step(15, 1)), HasSubstr("newer format"));
  EXPECT_THAT(reason(result, "step-000000000005-a0001.h5.damaged"), HasSubstr("damaged"));
  EXPECT_THAT(reason(result, "notes.txt"), HasSubstr("not a name of Holdfast's"));
  EXPECT_EQ(fates(result).count("attempts"), 0u);
}

TEST_F(Prune, VerifiesTwoThatStayBeforeAnythingGoes) {
  train();
  rot(disk, name_of_step(40, 1));
  const PruneResult result = prune();
  EXPECT_THAT(reason(result, name_of_step(40, 1)), HasSubstr("damaged"));
  EXPECT_THAT(checkpoints(disk), ElementsAre(name_of_step(30, 1), name_of_step(40, 1), name_of_step(50, 1)));
}

TEST_F(Prune, WithOneGoodFileNothingGoes) {
  train();
  for (const std::int64_t step : {10, 20, 30, 40}) rot(disk, name_of_step(step, 1));
  EXPECT_EQ(prune().attempt, 0u);
  EXPECT_EQ(checkpoints(disk).size(), 5u);
}

TEST_F(Prune, TheNewestFiniteStays) {
  {
    Life life(disk, {.keep = KeepLast{100}});
    life.start();
    for (const std::int64_t step : {10, 20, 30, 40, 50}) life.round(step, step <= 20);
    life.store.write_run_state(ended(RunPhase::failed, 50, 74));
  }
  prune();
  EXPECT_THAT(checkpoints(disk), ElementsAre(name_of_step(20, 1), name_of_step(40, 1), name_of_step(50, 1)));
}

TEST_F(Prune, WhatDidNotVerifyAboveTheNewestIsLeftAlone) {
  train();
  rot(disk, name_of_step(50, 1));
  const PruneResult result = prune();
  EXPECT_EQ(fates(result).at(name_of_step(50, 1)), Fate::left_alone);
  EXPECT_THAT(checkpoints(disk), ElementsAre(name_of_step(30, 1), name_of_step(40, 1), name_of_step(50, 1)));
  EXPECT_EQ(state()->durable_step, 40);
}

TEST_F(Prune, ACompleteRunStaysComplete) {
  train();
  const PruneResult first = prune({.keep = KeepLast{4}});
  EXPECT_EQ(first.attempt, 2u);
  EXPECT_EQ(state()->phase, RunPhase::complete);
  EXPECT_EQ(state()->attempt, 2u);
  EXPECT_EQ(state()->copy_of, 1u);
  EXPECT_EQ(state()->durable_step, 50);
  EXPECT_EQ(state()->time, "2026-01-02T03:04:05Z");
  EXPECT_EQ(prune().attempt, 3u);
  EXPECT_EQ(state()->phase, RunPhase::complete);
  EXPECT_EQ(state()->copy_of, 1u);
}

TEST_F(Prune, ARunThatSeemsAliveIsLeftAlone) {
  for (const RunPhase phase : {RunPhase::running, RunPhase::starting}) {
    disk = MemoryFileSystem();
    train(phase);
    const std::string said = refusal();
    EXPECT_THAT(said, HasSubstr("spot-17"));
    EXPECT_THAT(said, HasSubstr("2026-01-02T03:04:05Z"));
    EXPECT_THAT(said, HasSubstr("--even-if-running"));
    EXPECT_EQ(checkpoints(disk).size(), 5u);
    EXPECT_EQ(prune({.dry_run = true}).report.bytes_that_go(), 3 * 2 * kToyBlock);
  }
}

TEST_F(Prune, EvenIfRunningFencesTheRunOff) {
  Life life(disk, {.keep = KeepLast{100}});
  life.start();
  for (const std::int64_t step : {10, 20, 30}) life.round(step);
  EXPECT_EQ(prune({.even_if_running = true}).attempt, 2u);
  EXPECT_THAT(checkpoints(disk), ElementsAre(name_of_step(20, 1), name_of_step(30, 1)));
  EXPECT_THROW(life.save(40), SupersededError);
  EXPECT_EQ(state()->phase, RunPhase::interrupted);
  EXPECT_EQ(state()->exit_code, 75);
  EXPECT_EQ(state()->durable_step, 30);
}

TEST_F(Prune, AClaimThatSaysNothingSeemsAliveUnlessItIsAPrunes) {
  train();
  Life(disk).store.claim();
  EXPECT_THAT(refusal(), HasSubstr("has not written its state yet"));
  disk = MemoryFileSystem();
  train();
  Life(disk).store.claim(kClaimedByPrune);
  EXPECT_EQ(state()->phase, RunPhase::complete);
  EXPECT_EQ(prune().attempt, 3u);
  EXPECT_EQ(state()->phase, RunPhase::complete);
}

TEST_F(Prune, FilesThatWereCopiedAloneBelongToNobody) {
  for (std::int64_t step = 1; step <= 4; ++step) put_toy(disk, {.step = step, .attempt = 7});
  EXPECT_EQ(prune().attempt, 8u);
  EXPECT_THAT(checkpoints(disk), ElementsAre(name_of_step(3, 7), name_of_step(4, 7)));
  EXPECT_EQ(state()->phase, RunPhase::interrupted);
}

TEST_F(Prune, WhereNothingVerifiesNothingIsClaimed) {
  train();
  for (const std::int64_t step : {10, 20, 30, 40, 50}) rot(disk, name_of_step(step, 1));
  FaultFileSystem files(disk);
  EXPECT_THROW(prune(files), RefusedError);
  EXPECT_EQ(files.mutation_count(), 0);
}

TEST_F(Prune, AnAttemptThatBeginsMeanwhileWins) {
  train();
  FaultFileSystem files(disk);
  int unlinks = 0;
  files.set_hook([&](const Operation& operation) {
    if (operation.kind == Op::unlink && ++unlinks == 1) Life(disk).start();
  });
  EXPECT_THROW(prune(files), SupersededError);
  EXPECT_GE(checkpoints(disk).size(), 4u);
  disk = MemoryFileSystem();
  train();
  EXPECT_THROW(prune(disk, {.planned = [&](const RetentionReport&) { Life(disk).start(); }}), RefusedError);
  EXPECT_EQ(checkpoints(disk).size(), 5u);
}

// HOME, which another machine takes over while the plan is made. Its mirror's claim says nothing about a training.
TEST_F(Prune, AMirrorThatClaimsMeanwhileIsNotFencedOff) {
  train(RunPhase::running);
  std::optional<Life> rival;
  const auto claims = [&](const RetentionReport&) {
    rival.emplace(disk, StoreOptions{.allow_fresh = true});
    rival->store.claim(kClaimedByMirror);
  };
  EXPECT_THAT(refusal({.even_if_running = true, .planned = claims}), HasSubstr("has just begun"));
  EXPECT_NO_THROW(rival->store.check_claim());
  EXPECT_EQ(checkpoints(disk).size(), 5u);
}

TEST_F(Prune, ARunThatCompletesMeanwhileStaysComplete) {
  Life life(disk, {.keep = KeepLast{100}});
  life.start();
  for (const std::int64_t step : {10, 20, 30, 40, 50}) life.round(step, step != 50);
  const auto completes = [&](const RetentionReport&) {
    life.store.write_run_state(ended(RunPhase::complete, 50));
  };
  EXPECT_EQ(prune({.even_if_running = true, .planned = completes}).attempt, 2u);
  EXPECT_EQ(state()->phase, RunPhase::complete);
  EXPECT_EQ(state()->copy_of, 1u);
}

TEST_F(Prune, AnAttemptThatBeginsJustBeforeTheClaimIsNotFencedOff) {
  for (const Op moment : {Op::list, Op::create}) {
    disk = MemoryFileSystem();
    train();
    FaultFileSystem files(disk);
    std::optional<Life> rival;
    bool planned = false;
    files.set_hook([&](const Operation& operation) {
      if (!planned || rival || operation.kind != moment) return;
      if (moment == Op::list && operation.path != kRun)
        return;  // the first look after the plan is the claim's
      rival.emplace(disk);
      rival->start();
    });
    try {
      prune(files, {.planned = [&](const RetentionReport&) { planned = true; }});
      ADD_FAILURE() << "not refused";
    } catch (const RefusedError& error) {
      EXPECT_THAT(error.what(), HasSubstr("has just begun"));
    }
    ASSERT_TRUE(rival);
    rival->store.check_claim();
    EXPECT_EQ(rival->store.attempt(), 2u);
    EXPECT_EQ(checkpoints(disk).size(), 5u);
  }
}

// Prune is what one does when the volume is full.
TEST_F(Prune, WorksOnAFullVolume) {
  train();
  FaultFileSystem files(disk);
  int reserved = 0;
  files.set_hook([&](const Operation& operation) {
    if (operation.kind == Op::unlink) reserved = 1;
  });
  files.fail(Op::write, 2, ENOSPC);  // the state; the first is the claim's signature
  prune(files);
  EXPECT_EQ(reserved, 1);
  EXPECT_EQ(state()->phase, RunPhase::complete);
  EXPECT_EQ(checkpoints(disk).size(), 2u);
}

// What a start finds after a prune that was cut anywhere.
void check(MemoryFileSystem& left, const std::string& what) {
  const auto goes_on = [&](MemoryFileSystem& run) {
    Life next(run, {.keep = KeepLast{2}});
    const Selection found = next.start();
    ASSERT_TRUE(found.newest) << "LOST " << what;
    ASSERT_EQ(found.newest->step, 50) << "LOST " << what;
    ASSERT_EQ(run.get(in_run(name_of_step(50, 1))), toy_bytes({.step = 50, .attempt = 1, .finite = false}))
        << what;
    next.round(51);
  };
  try {
    const LastWord word = [&] {
      const auto run = left.open_directory(kRun, false);
      return last_word(*run);
    }();
    if (word.state) {
      ASSERT_EQ(word.state->phase, RunPhase::complete) << "FALSE STATE " << what;
      ASSERT_EQ(word.state->durable_step, 50) << "FALSE STATE " << what;
    }
    for (const std::int64_t step : {40, 50}) ASSERT_TRUE(left.exists(in_run(name_of_step(step, 1)))) << what;
    MemoryFileSystem started = left.copy();
    goes_on(started);
    FakeClock clock;
    ToyVerifier verifier;
    // A signature that the cut took away looks like a run's.
    holdfast::prune(left, clock, verifier,
                    {.directory = kRun, .keep = KeepLast{2}, .even_if_running = !word.state.has_value()});
    ASSERT_EQ(checkpoints(left).size(), 2u) << what;
    goes_on(left);
  } catch (const Error& error) {
    FAIL() << "STUCK " << what << ": " << error.what();
  }
}

TEST_F(Prune, APowerCutAtEveryOperationLosesNothing) {
  train();
  disk.put(in_run("tmp-a0001-step-60-1"), "x");
  FaultFileSystem files(disk);
  int states = 0;
  int silent = 0;  // of what a kill leaves, with nothing lost
  const auto cut = [&](const std::string& where) {
    std::set<std::string> open;
    for (std::size_t known = SIZE_MAX; known != open.size();) {
      known = open.size();
      for (const std::string& thing : disk.unsynced(open)) open.insert(thing);
    }
    const std::vector<std::string> things(open.begin(), open.end());
    ASSERT_LE(things.size(), 9u);
    for (unsigned bits = 0; bits < 1u << things.size(); ++bits) {
      std::set<std::string> kept;
      for (std::size_t i = 0; i < things.size(); ++i) {
        if ((bits >> i & 1) != 0) kept.insert(things[i]);
      }
      MemoryFileSystem left = disk.crash_keeping(kept);
      if (kept.size() == things.size() && !last_word(*left.open_directory(kRun, false)).state) ++silent;
      check(left, where + ", kept " + std::to_string(bits));
      ++states;
    }
  };
  files.set_hook([&](const Operation& operation) {
    if (operation.mutating && !HasFatalFailure()) cut("before " + operation.text());
  });
  prune(files);
  files.set_hook({});
  cut("at the end");
  std::printf("prune: %d disks after a power cut, 0 lost\n", states);
  EXPECT_GT(states, 100);
  EXPECT_LE(silent, 1) << "only between the claim and its signature nobody can tell whose it is";
}

TEST_F(Prune, AFailureAtEveryOperationLosesNothing) {
  train();
  disk.put(in_run("tmp-a0001-step-60-1"), "x");
  const MemoryFileSystem past = disk.copy();
  int fired = 0;
  for (const int code : {EIO, ENOSPC, EROFS}) {
    for (const bool after : {false, true}) {
      for (int nth = 1;; nth += kStride) {
        disk = past.copy();
        FaultFileSystem files(disk);
        files.fail_mutation(nth, code, {.after = after});
        try {
          prune(files);
        } catch (const IoError&) {
        } catch (const SupersededError&) {
        }
        if (files.faults_fired() == 0) break;
        ++fired;
        check(disk, "mutation " + std::to_string(nth) + " failed with " + std::to_string(code));
        if (HasFatalFailure()) return;
      }
    }
  }
  EXPECT_GT(fired, 60 / kStride);
}

}}  // namespace holdfast::test
