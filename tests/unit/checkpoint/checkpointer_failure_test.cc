// Saves that fail, rivals, disks that are full or gone: training goes on, and nothing is claimed that is not
// so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <limits>
#include <thread>
#include <utility>

#include "holdfast/base/error.h"
#include "rig.h"
#include "support/bad_page_file_system.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

RunPhase phase_of(const Volume& volume) {
  auto disk = volume.disk.copy();
  return read_run_state(*disk.open_directory(kRun, false)).value().phase;
}

TEST(CheckpointerFailure, AFullVolumeDoesNotHideTheEnd) {
  Volume volume;
  CapturedLog log;
  Attempt run(volume.options(SaveEvery::steps(2)));
  run.train_to(5);
  volume.disk.set_capacity(1000);  // somebody else has filled it
  run.checkpointer.request_stop("SIGTERM");
  run.step();
  EXPECT_EQ(run.checkpointer.finish(), 75);
  EXPECT_EQ(phase_of(volume), RunPhase::interrupted);
}

TEST(CheckpointerFailure, ShowsUntilTheNextAcknowledgement) {
  Volume volume;
  CapturedLog log;
  Attempt run(volume.options());
  run.step();
  volume.faults.fail(Op::sync_file, 1, EIO);
  EXPECT_EQ(run.checkpointer.save().wait(), SaveStatus::failed);
  for (int i = 0; i < 3; ++i) {
    const Decision decision = run.step();
    EXPECT_FALSE(decision.stop);
    ASSERT_TRUE(decision.failure);
    EXPECT_THAT(*decision.failure, HasSubstr("EIO"));
  }
  EXPECT_EQ(run.checkpointer.save().wait(), SaveStatus::durable);
  EXPECT_FALSE(run.step().failure);
  EXPECT_EQ(run.checkpointer.finish(), 0);
}

TEST(CheckpointerFailure, AFullDiskEndsNoTraining) {
  Volume volume;
  CapturedLog log;
  Attempt run(volume.options({SaveEvery::steps(1)}));
  run.step();
  ASSERT_EQ(run.checkpointer.save().wait(), SaveStatus::durable);
  volume.disk.set_capacity(1000);
  for (int i = 0; i < 5; ++i) {
    run.step();
    EXPECT_EQ(run.checkpointer.save().wait(), SaveStatus::failed);
  }
  EXPECT_THAT(run.step().failure.value_or(""), HasSubstr("ENOSPC"));
  EXPECT_EQ(run.checkpointer.last_durable().step, 1);
  volume.disk.set_capacity(UINT64_MAX);
  EXPECT_EQ(run.checkpointer.finish(), 0);
  EXPECT_EQ(run.checkpointer.last_durable().step, 7);
}

TEST(CheckpointerFailure, TheLastCommitDecidesTheExitCode) {
  Volume volume;
  CapturedLog log;
  {
    Attempt run(volume.options());
    run.train_to(3);
    ASSERT_EQ(run.checkpointer.save().wait(), SaveStatus::durable);
    run.train_to(5);
    volume.disk.set_capacity(1000);
    EXPECT_EQ(run.checkpointer.finish(), 74);
    EXPECT_EQ(run.checkpointer.last_durable().step, 3);
    volume.disk.set_capacity(UINT64_MAX);
  }
  EXPECT_THAT(log.text(), HasSubstr("what was acknowledged before stands"));
  EXPECT_EQ(Attempt(volume.options()).resumed.step, 3);
}

TEST(CheckpointerFailure, ATransientFaultAtTheEndIsTriedOnceMore) {
  Volume volume;
  CapturedLog log;
  Attempt run(volume.options());
  run.train_to(3);
  volume.faults.fail(Op::sync_file, 1, EIO);
  EXPECT_EQ(run.checkpointer.finish(), 0);
  EXPECT_EQ(run.checkpointer.last_durable().step, 3);
}

TEST(CheckpointerFailure, AnInterruptedRunWhoseLastSaveFailsSaysSo) {
  Volume volume;
  CapturedLog log;
  Attempt run(volume.options());
  run.step();
  volume.faults.fail(Op::sync_file, 1, EIO, {.for_ever = true});
  run.checkpointer.request_stop("SIGTERM");
  EXPECT_TRUE(run.step().stop);
  EXPECT_EQ(run.checkpointer.finish(), 74);
}

TEST(CheckpointerFailure, AFailedDirectorySyncCostsOneSave) {
  Volume volume;
  CapturedLog log;
  Attempt run(volume.options());
  run.step();
  volume.faults.set_hook([&](const Operation& operation) {
    if (operation.kind == Op::rename_new) volume.faults.fail(Op::sync_directory, 1, EIO);
  });
  EXPECT_EQ(run.checkpointer.save().wait(), SaveStatus::failed);
  volume.faults.set_hook(nullptr);
  EXPECT_EQ(run.checkpointer.last_durable().step, -1);
  run.step();
  EXPECT_EQ(run.checkpointer.save().wait(), SaveStatus::durable);
  EXPECT_EQ(run.checkpointer.last_durable().step, 2);
  EXPECT_EQ(run.checkpointer.finish(), 0);
  EXPECT_THAT(log.text(), HasSubstr("saving works again"));
}

TEST(CheckpointerFailure, AStateThatCannotBeCopiedIsAFailedSave) {
  Volume volume;
  CapturedLog log;
  Attempt run(volume.options({SaveEvery::steps(2)}));
  run.source.on_copy = [] { throw std::runtime_error("device lost"); };
  run.train_to(2);
  EXPECT_FALSE(run.decision.saved);
  EXPECT_THAT(run.decision.failure.value_or(""), HasSubstr("device lost"));
  EXPECT_EQ(run.checkpointer.save().status(), SaveStatus::failed);
  run.source.on_copy = nullptr;
  run.train_to(4);
  EXPECT_TRUE(run.decision.saved);
  EXPECT_EQ(run.checkpointer.finish(), 0);
}

TEST(CheckpointerFailure, ARivalSupersedes) {
  Volume volume;
  CapturedLog log;
  Attempt older(volume.options());
  older.train_to(5);
  ASSERT_EQ(older.checkpointer.save().wait(), SaveStatus::durable);
  Attempt newer(volume.options());
  EXPECT_EQ(newer.resumed.step, 5);
  newer.train_to(8);
  ASSERT_EQ(newer.checkpointer.save().wait(), SaveStatus::durable);

  const auto before = volume.checkpoints();
  older.step();
  EXPECT_EQ(older.checkpointer.save().wait(), SaveStatus::failed);
  const Decision decision = older.step();
  EXPECT_TRUE(decision.stop);
  EXPECT_FALSE(decision.saved);
  EXPECT_NE(decision.reason, "");
  EXPECT_TRUE(older.checkpointer.tick());
  EXPECT_EQ(older.checkpointer.finish(), 76);
  EXPECT_EQ(older.checkpointer.stop_reason(), decision.reason);
  EXPECT_EQ(volume.checkpoints(), before);

  newer.train_to(10);
  EXPECT_EQ(newer.checkpointer.finish(), 0);
  EXPECT_EQ(phase_of(volume), RunPhase::complete);
}

TEST(CheckpointerFailure, ARivalIsNoticedAtTheEndAtTheLatest) {
  Volume volume;
  CapturedLog log;
  Attempt older(volume.options());
  older.train_to(5);
  Attempt newer(volume.options());
  EXPECT_EQ(older.checkpointer.finish(), 76);
  EXPECT_TRUE(volume.checkpoints().empty());
  EXPECT_EQ(phase_of(volume), RunPhase::running);  // the newer one's
}

TEST(CheckpointerFailure, AnotherModelIsRefusedBeforeItClaims) {
  Volume volume;
  CapturedLog log;
  Attempt first(volume.options());
  first.train_to(5);
  ASSERT_EQ(first.checkpointer.save().wait(), SaveStatus::durable);

  MemorySource other({.elements = 7});
  Checkpointer second(other, volume.options());
  EXPECT_THROW(second.resume(), RefusedError);
  EXPECT_TRUE(volume.disk.exists(volume.path("attempts/1")));
  EXPECT_FALSE(volume.disk.exists(volume.path("attempts/2")));
  EXPECT_EQ(other.loads, 0);
  first.train_to(8);
  EXPECT_EQ(first.checkpointer.finish(), 0);
}

// The state files are for people; the room that retention makes is for the next save.
TEST(CheckpointerFailure, WhatCannotBeToldDoesNotKeepRetentionFromMakingRoom) {
  Volume volume;
  CapturedLog log;
  CheckpointerOptions options = volume.options();
  options.keep = KeepLast{2};
  Attempt run(options);
  volume.faults.set_hook([](const Operation& operation) {
    if (operation.mutating && operation.path.find("-state") != std::string::npos) {
      throw IoError("write", operation.path, ENOSPC);
    }
  });
  for (int i = 0; i < 6; ++i) {
    run.step();
    ASSERT_EQ(run.checkpointer.save().wait(), SaveStatus::durable);
  }
  EXPECT_EQ(run.checkpointer.finish(), 0);
  int files = 0;
  for (const auto& name : volume.disk.names(kRun)) files += name.ends_with(".h5") ? 1 : 0;
  EXPECT_LE(files, 3);
  EXPECT_EQ(run.checkpointer.last_durable().step, 6);
}

// It fails again after every save.
TEST(CheckpointerFailure, AFileThatCannotBeDeletedIsToldOnce) {
  Volume volume;
  std::string text;
  {
    CapturedLog log;
    CheckpointerOptions options = volume.options();
    options.keep = KeepLast{2};
    Attempt run(options);
    volume.faults.set_hook([](const Operation& operation) {
      if (operation.kind == Op::unlink && operation.path.ends_with("/step-000000000001-a0001.h5")) {
        throw IoError("unlink", operation.path, EPERM);
      }
    });
    for (int i = 0; i < 6; ++i) {
      run.step();
      ASSERT_EQ(run.checkpointer.save().wait(), SaveStatus::durable);
    }
    EXPECT_EQ(run.checkpointer.finish(), 0);
    text = log.text();
  }
  const std::string told = "unlink " + volume.path("step-000000000001-a0001.h5");
  const auto first = text.find(told);
  EXPECT_NE(first, std::string::npos) << text;
  EXPECT_EQ(text.find(told, first + 1), std::string::npos) << text;
  int files = 0;
  for (const auto& name : volume.disk.names(kRun)) files += name.ends_with(".h5") ? 1 : 0;
  EXPECT_LE(files, 4) << "the others made room";
}

TEST(CheckpointerFailure, AVolumeThatGoesAwayDuringTheStartIsNotReplacedByTheRootDisk) {
  Volume volume;
  CapturedLog log;
  {
    Attempt first(volume.options());
    first.train_to(5);
    first.checkpointer.finish();
  }
  bool read = false;
  volume.faults.set_hook([&](const Operation& operation) {
    if (operation.kind == Op::read && !std::exchange(read, true)) volume.disk.unmount("/vol");
  });
  MemorySource source;
  Checkpointer second(source, volume.options());
  EXPECT_THROW(second.resume(), IoError);
  EXPECT_TRUE(read);
  EXPECT_FALSE(volume.disk.exists(volume.path("attempts/1")));
  EXPECT_EQ(source.loads, 0);
}

TEST(CheckpointerFailure, ChangedOptionsAreRefusedUnlessOverridden) {
  Volume volume;
  CapturedLog log;
  {
    Attempt first(volume.options());
    first.train_to(5);
    first.checkpointer.finish();
  }
  MemorySource faster({.learning_rate = 0.2});
  EXPECT_THROW(Checkpointer(faster, volume.options()).resume(), RefusedError);
  CheckpointerOptions options = volume.options();
  options.start.overrides = {"learning_rate"};
  Attempt second(options, {.learning_rate = 0.2});
  EXPECT_EQ(second.resumed.step, 5);
}

TEST(CheckpointerFailure, WhereNothingVerifiesAFreshStartIsRefused) {
  Volume volume;
  CapturedLog log;
  {
    Attempt first(volume.options());
    first.train_to(5);
    first.checkpointer.finish();
  }
  volume.disk.flip_bit(volume.path("step-000000000005-a0001.h5"), 9000);
  MemorySource source;
  EXPECT_THROW(Checkpointer(source, volume.options()).resume(), RefusedError);
  CheckpointerOptions options = volume.options();
  options.start.allow_fresh = true;
  Attempt second(options);
  EXPECT_TRUE(second.resumed.fresh);
}

// The file is whole, a page of it in memory is not: the device decides.
TEST(CheckpointerFailure, ABadPageInMemoryIsNoDamage) {
  Volume volume;
  {
    Attempt first(volume.options({SaveEvery::steps(2)}));
    first.train_to(6);
    first.checkpointer.finish();
  }
  const std::string newest = "step-000000000006-a0001.h5";
  const std::uint64_t size = volume.disk.get(volume.path(newest)).size();
  for (const std::uint64_t offset : {std::uint64_t{100}, std::uint64_t{5000}, size - 3000}) {
    BadPageFileSystem memory(volume.faults);
    memory.spoil(newest, offset);
    CheckpointerOptions options = volume.options();
    options.start.seams.file_system = &memory;
    Attempt second(options);
    EXPECT_EQ(second.resumed.checkpoint, newest) << offset;
    EXPECT_TRUE(second.resumed.skipped.empty());
    EXPECT_EQ(second.state(), state_after(6));
    EXPECT_GT(memory.bad_reads(), 0);
  }
  EXPECT_TRUE(volume.disk.exists(volume.path(newest)));
}

TEST(CheckpointerFailure, DamageIsSteppedPastAloud) {
  Volume volume;
  {
    Attempt first(volume.options({SaveEvery::steps(2)}));
    first.train_to(6);
    first.checkpointer.finish();
  }
  const std::string newest = "step-000000000006-a0001.h5";
  volume.disk.flip_bit(volume.path(newest), volume.disk.get(volume.path(newest)).size() - 3000);
  CapturedLog log;
  Attempt second(volume.options());
  EXPECT_EQ(second.resumed.step, 4);
  ASSERT_EQ(second.resumed.skipped.size(), 1u);
  EXPECT_EQ(second.resumed.skipped[0].name, newest);
  EXPECT_THAT(log.text(), HasSubstr("skipped " + newest + ": "));
}

TEST(CheckpointerFailure, AMissingMountIsWaitedForAndNeverReplaced) {
  Volume volume;
  CapturedLog log;
  volume.disk.unmount("/vol");
  volume.clock.plan(90s, [&] { volume.disk.mount("/vol"); });
  {
    Attempt run(volume.options());
    EXPECT_GE(volume.clock.slept(), 90s);
    run.step();
    EXPECT_EQ(run.checkpointer.finish(), 0);
  }
  volume.disk.unmount("/vol");
  MemorySource source;
  Checkpointer second(source, volume.options());
  EXPECT_THROW(second.resume(), IoError);
  EXPECT_FALSE(volume.disk.exists(kRun));
}

// What lies on a volume is known only once it is there.
TEST(CheckpointerFailure, ALinkOnALateVolumeLeadsNowhereElse) {
  const TemporaryFolder folder;
  const std::filesystem::path mount = folder.path() / "vol";
  Volume volume;
  CapturedLog log;
  CheckpointerOptions options = volume.options();
  options.mount = mount;
  options.directory = mount / "run";
  MemorySource source;
  Checkpointer checkpointer(source, options);
  volume.clock.plan(30s, [&] {
    std::filesystem::create_directories(folder.path() / "elsewhere");
    std::filesystem::create_directory(mount);
    std::filesystem::create_directory_symlink(folder.path() / "elsewhere", mount / "run");
    volume.disk.mount(mount);
  });
  EXPECT_THROW(checkpointer.resume(), UsageError);
  EXPECT_GE(volume.clock.slept(), 30s);
  EXPECT_TRUE(volume.disk.names(mount).empty());
}

TEST(CheckpointerFailure, AStopEndsTheWaitForAMount) {
  Volume volume;
  CapturedLog log;
  volume.disk.unmount("/vol");
  MemorySource source;
  Checkpointer checkpointer(source, volume.options());
  volume.clock.plan(30s, [&] { checkpointer.request_stop("SIGTERM"); });
  try {
    checkpointer.resume();
    ADD_FAILURE() << "went on";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::interrupted);
    EXPECT_THAT(error.what(), HasSubstr("SIGTERM"));
  }
  EXPECT_LT(volume.clock.slept(), 60s);
}

TEST(CheckpointerFailure, AVolumeThatCannotBeReadEndsTheStart) {
  Volume volume;
  CapturedLog log;
  {
    Attempt first(volume.options());
    first.train_to(2);
    first.checkpointer.finish();
  }
  volume.faults.fail(Op::read, 1, EIO, {.for_ever = true});
  MemorySource source;
  EXPECT_THROW(Checkpointer(source, volume.options()).resume(), IoError);
  volume.faults.clear_faults();
  EXPECT_EQ(Attempt(volume.options()).resumed.step, 2);
}

TEST(CheckpointerFailure, NonFiniteStatesAreMarked) {
  Volume volume;
  CapturedLog log;
  CheckpointerOptions options = volume.options();
  options.keep = KeepLast{2};
  Attempt run(options);
  run.step();
  ASSERT_EQ(run.checkpointer.save().wait(), SaveStatus::durable);
  for (int i = 0; i < 4; ++i) {
    run.step();
    run.source.weight(3) = std::numeric_limits<float>::quiet_NaN();
    ASSERT_EQ(run.checkpointer.save().wait(), SaveStatus::durable);
  }
  EXPECT_EQ(run.checkpointer.finish(), 0);
  // The newest finite one outlives `keep`.
  EXPECT_THAT(volume.checkpoints(), testing::Contains("step-000000000001-a0001.h5"));
  EXPECT_EQ(volume.checkpoints().size(), 3u);
}

// A writer that hangs in the disk while the machine's time runs out: nobody waits for it, neither finish()
// nor the destructor, and when the disk is back it hurts nobody.
TEST(CheckpointerFailure, AHungDiskHoldsNobodyAfterTheGrace) {
  Volume volume;
  CapturedLog log;
  Gate gate;
  {
    CheckpointerOptions options = volume.options();
    options.notices.hear_signals = true;
    options.notices.term_grace = std::chrono::seconds(25);  // named: a guess would give the disk more time
    Attempt run(options);
    run.step();
    volume.faults.set_hook([&](const Operation& operation) {
      if (operation.kind == Op::sync_file) gate.pass();
    });
    run.checkpointer.save();
    gate.await_arrival();
    std::raise(SIGTERM);
    while (!run.checkpointer.tick()) std::this_thread::sleep_for(1ms);
    std::thread time([&] {
      std::this_thread::sleep_for(100ms);
      volume.clock.advance(30s);
    });
    EXPECT_EQ(run.checkpointer.finish(), 74);
    time.join();
  }
  EXPECT_GT(volume.disk.open_handles(), 0) << "the writer is still in there";
  gate.open();
  while (volume.disk.open_handles() > 0) std::this_thread::sleep_for(1ms);
  const std::string said = log.text();
  EXPECT_THAT(said, HasSubstr("did not end in time"));
  EXPECT_THAT(said, HasSubstr("hangs in the disk"));
  volume.faults.set_hook(nullptr);
  EXPECT_EQ(Attempt(volume.options()).checkpointer.attempt(), 2U);
}

}}  // namespace holdfast::test
