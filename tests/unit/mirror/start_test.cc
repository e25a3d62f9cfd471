// Where a trainer begins that has two tiers.
#include "holdfast/mirror/start.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <utility>

#include "holdfast/base/log.h"
#include "machine.h"
#include "support/fault_file_system.h"

namespace holdfast::test { namespace {

class Starts : public testing::Test {
 protected:
  Starts() { set_log_level(LogLevel::error); }
  // A machine trained to that step, and vanished.
  void past(std::initializer_list<std::int64_t> steps) {
    MemoryFileSystem gone;
    live(gone, safe, steps);
  }
  MemoryFileSystem quick;
  MemoryFileSystem safe;
};

TEST_F(Starts, AFreshRunBeginsAsAttemptOne) {
  Machine machine(quick, safe);
  const PreparedStart start = machine.prepare();
  EXPECT_EQ(start.attempt, 1U);
  EXPECT_FALSE(start.newest);
  EXPECT_EQ(machine.start_trainer(), 1U);
}

TEST_F(Starts, AnEmptyDiskGetsTheNewest) {
  past({10, 20, 30});
  Machine machine(quick, safe);
  const PreparedStart start = machine.prepare();
  EXPECT_TRUE(start.fetched);
  EXPECT_EQ(start.newest, (FileId{.attempt = 1, .step = 30}));
  EXPECT_EQ(quick.get(dir_file(1, 30)), safe.get(home_file(1, 30)));
  EXPECT_EQ(machine.start_trainer(), start.attempt);
  EXPECT_EQ(machine.step, 30);
  machine.save(40);
  machine.bring_home();
  EXPECT_TRUE(safe.exists(home_file(start.attempt, 40)));
}

TEST_F(Starts, WhatIsHereAndNewerStays) {
  Machine machine(quick, safe);
  machine.prepare();
  machine.start_trainer();
  machine.save(10);
  machine.bring_home();
  machine.save(20);
  Machine again(quick, safe);
  const PreparedStart start = again.prepare();
  EXPECT_FALSE(start.fetched);
  EXPECT_EQ(start.newest, (FileId{.attempt = 1, .step = 20}));
  EXPECT_EQ(again.start_trainer(), start.attempt);
}

TEST_F(Starts, AnOlderOneIsTakenIfTheNewestIsDamaged) {
  past({10, 20, 30});
  safe.flip_bit(home_file(1, 30), kToyBlock + 1);
  Machine machine(quick, safe);
  const PreparedStart start = machine.prepare();
  EXPECT_EQ(start.newest, (FileId{.attempt = 1, .step = 20}));
  ASSERT_EQ(start.skipped.size(), 1U);
  EXPECT_FALSE(quick.exists(dir_file(1, 30)));
  machine.start_trainer();
  EXPECT_EQ(machine.step, 20);
}

TEST_F(Starts, IsRefusedIfNothingInHomeVerifies) {
  past({10, 20});
  for (const std::int64_t step : {10, 20}) safe.flip_bit(home_file(1, step), kToyBlock + 1);
  Machine machine(quick, safe);
  EXPECT_THROW(machine.prepare(), RefusedError);
}

TEST_F(Starts, AFileThatIsDamagedHereComesFromHome) {
  Machine machine(quick, safe);
  machine.prepare();
  machine.start_trainer();
  machine.save(10);
  machine.save(20);
  machine.bring_home();
  quick.flip_bit(dir_file(1, 20), kToyBlock + 1);
  Machine again(quick, safe);
  const PreparedStart start = again.prepare();
  EXPECT_TRUE(start.fetched);
  EXPECT_EQ(start.newest, (FileId{.attempt = 1, .step = 20}));
  again.start_trainer();
  EXPECT_EQ(again.step, 20);
}

TEST_F(Starts, ANumberOfAMachineThatSavedNothingIsNotUsedAgain) {
  {
    MemoryFileSystem gone;
    Machine machine(gone, safe);
    EXPECT_EQ(machine.prepare().attempt, 1U);
  }
  Machine machine(quick, safe);
  EXPECT_EQ(machine.prepare().attempt, 2U);
  EXPECT_EQ(machine.start_trainer(), 2U);
}

TEST_F(Starts, NoTwoMachinesGetOneNumber) {
  past({10});
  MemoryFileSystem other;
  Machine one(quick, safe);
  Machine two(other, safe);
  const AttemptNumber first = one.prepare().attempt;
  const AttemptNumber second = two.prepare().attempt;
  EXPECT_LT(first, second);
  EXPECT_EQ(one.start_trainer(), first);
  EXPECT_EQ(two.start_trainer(), second);
}

// Its claim was the newest when it looked, and it stands still before the rename: the successor sweeps HOME before
// it lists, so what the successor has not seen never appears.
TEST_F(Starts, ACopyThatAnOlderMachineHasNotNamedNeverAppears) {
  past({10});
  bool once = true;
  FaultFileSystem watched(safe);
  Machine zombie(quick, watched);
  zombie.prepare();
  zombie.start_trainer();
  const FileId late = zombie.save(20);
  MemoryFileSystem other;
  watched.set_hook([&](const Operation& operation) {
    if (operation.kind != Op::rename_new || !std::exchange(once, false)) return;
    Machine successor(other, safe);
    EXPECT_EQ(successor.prepare().newest, (FileId{.attempt = 1, .step = 10}));
  });
  EXPECT_THROW(zombie.bring_home(), SupersededError);
  EXPECT_FALSE(once);
  EXPECT_FALSE(safe.exists(home_file(late.attempt, late.step)));
}

TEST_F(Starts, AZombiesLateCheckpointIsOlderThanTheSuccessors) {
  Machine zombie(quick, safe);
  zombie.prepare();
  zombie.start_trainer();
  zombie.save(10);
  zombie.bring_home();
  zombie.save(1000);
  const std::vector<std::byte> late = quick.get(dir_file(1, 1000));
  MemoryFileSystem other;
  {
    Machine successor(other, safe);
    successor.prepare();
    successor.start_trainer();
    successor.save(20);
    successor.bring_home();
  }
  safe.put(home_file(1, 1000), late);
  MemoryFileSystem third;
  Machine next(third, safe);
  EXPECT_EQ(next.prepare().newest, (FileId{.attempt = 2, .step = 20}));
}

// Bad weather at a start: HOME does not answer.
class StartsAlone : public Starts {
 protected:
  void storm() { weather.fail(Op::list, 1, EIO, {.for_ever = true}); }
  PreparedStart prepare(Machine& machine) {
    const PreparedStart start = prepare_start_or_go_alone(
        machine.files, machine.verifier, kDir, *machine.home, machine.pace, std::chrono::minutes(10));
    machine.mirror.add_claims(start.claims);
    if (start.alone) machine.mirror.go_alone(start.attempt);
    return start;
  }
  // A machine with one step home, whose next start finds HOME away.
  void begin(Machine& machine) {
    prepare(machine);
    machine.start_trainer();
    machine.save(10);
    machine.bring_home();
    storm();
  }
  FaultFileSystem weather{safe};
};

TEST_F(StartsAlone, AfterTheWaitARunGoesOnFromItsOwnDisk) {
  {
    Machine first(quick, weather);
    begin(first);
  }
  Machine machine(quick, weather);
  const SteadyTime began = machine.clock.now();
  const PreparedStart start = prepare(machine);
  EXPECT_GE(machine.clock.now() - began, std::chrono::minutes(10));
  EXPECT_TRUE(start.alone);
  EXPECT_EQ(start.newest, (FileId{.attempt = 1, .step = 10}));
  EXPECT_EQ(machine.start_trainer(), start.attempt);
  machine.save(20);
  EXPECT_THROW(machine.bring_home(), IoError);
  weather.clear_faults();
  machine.bring_home();
  EXPECT_TRUE(safe.exists(home_file(2, 20))) << "nobody has claimed that number meanwhile";
  EXPECT_EQ(read_home_record(*quick.open_directory(kDir, false))->alone, 0U);
}

TEST_F(StartsAlone, AHomeThatComesBackInTimeIsClaimed) {
  past({10});
  storm();
  Machine machine(quick, weather, [&, waits = 0]() mutable {
    if (++waits == 600) weather.clear_faults();
  });
  const PreparedStart start = prepare(machine);
  EXPECT_FALSE(start.alone);
  EXPECT_TRUE(start.fetched);
}

TEST_F(StartsAlone, AnEmptyDiskHasNothingToGoOnFrom) {
  past({10});
  storm();
  Machine machine(quick, weather);
  EXPECT_THROW(prepare(machine), IoError);
  EXPECT_FALSE(quick.exists(kDir / "attempts")) << "nothing was begun";
}

// The start claims a number in HOME, cannot list it, and is tried again: that claim is its own.
TEST_F(StartsAlone, AStartThatFailsBehindItsClaimContestsNothing) {
  {
    Machine first(quick, weather);
    begin(first);
  }
  {
    Machine alone(quick, weather);
    ASSERT_TRUE(prepare(alone).alone);
    alone.start_trainer();
    alone.save(20);
  }
  weather.clear_faults();
  int fired = 0;
  for (int nth = 1; nth <= 12; ++nth) {
    MemoryFileSystem disk = quick.copy();
    MemoryFileSystem home = safe.copy();
    FaultFileSystem gust(home);
    gust.fail(Op::list, nth, EIO);
    Machine machine(disk, gust);
    EXPECT_EQ(prepare(machine).newest, (FileId{.attempt = 2, .step = 20})) << "listing " << nth;
    fired += gust.faults_fired();
  }
  EXPECT_GT(fired, 3);
}

// No try can fetch it.
TEST_F(StartsAlone, NotWhereHomeHasNewerWork) {
  live(quick, weather, {10});
  past({20});
  Machine machine(quick, weather);
  weather.fail(Op::read, 1, EIO, {.for_ever = true});
  EXPECT_THROW(prepare(machine), IoError) << "step 20 is there";
}

// Each try leaves a claim whose name may not be durable. When HOME is back they are this run's.
TEST_F(StartsAlone, ClaimsThatWereNeverConfirmedAreOwn) {
  {
    Machine first(quick, weather);
    begin(first);
  }
  weather.clear_faults();
  weather.fail(Op::sync_directory, 1, EIO, {.for_ever = true});
  Machine machine(quick, weather);
  const PreparedStart start = prepare(machine);
  ASSERT_TRUE(start.alone);
  EXPECT_TRUE(safe.exists(kHome + "/attempts/" + claim_name(start.attempt)));
  machine.start_trainer();
  machine.save(20);
  weather.clear_faults();
  EXPECT_NO_THROW(machine.bring_home());
  EXPECT_TRUE(safe.exists(home_file(start.attempt, 20)));
}

// Both wait for the same HOME. The other one claims as this one is about to: that one goes on, and this one ends.
TEST_F(StartsAlone, WhoLosesTheRaceForANumberFencesNobodyOff) {
  for (const Op when : {Op::open_directory, Op::create}) {
    MemoryFileSystem disk;
    MemoryFileSystem home;
    FaultFileSystem away(home);
    const auto goes_alone = [&](Machine& machine) {
      return prepare_start_or_go_alone(machine.files, machine.verifier, kDir, *machine.home, machine.pace,
                                       std::chrono::minutes(10));
    };
    {
      Machine first(disk, away);
      first.prepare();
      first.start_trainer();
      first.save(10);
      first.bring_home();
    }
    away.fail(Op::list, 1, EIO, {.for_ever = true});
    Machine alone(disk, away);
    const PreparedStart start = goes_alone(alone);
    ASSERT_TRUE(start.alone);
    alone.mirror.go_alone(start.attempt);
    alone.start_trainer();
    alone.save(20);
    away.clear_faults();
    MemoryFileSystem other;
    Machine second(other, home);
    bool once = true;
    away.set_hook([&](const Operation& operation) {
      if (operation.kind != when || !operation.mutating || !std::exchange(once, false)) return;
      EXPECT_EQ(second.prepare().attempt, start.attempt);
    });
    EXPECT_THROW(alone.bring_home(), SupersededError);
    EXPECT_FALSE(once);
    EXPECT_EQ(second.start_trainer(), start.attempt);
    second.save(30);
    EXPECT_NO_THROW(second.bring_home()) << name_of(when);
    EXPECT_FALSE(home.exists(home_file(start.attempt, 20)));
  }
}

TEST_F(StartsAlone, OfTwoWritersOnlyTheOneWithTheClaimCounts) {
  {
    Machine first(quick, weather);
    begin(first);
  }
  Machine alone(quick, weather);
  ASSERT_TRUE(prepare(alone).alone);
  ASSERT_EQ(alone.start_trainer(), 2U);
  alone.save(20);
  alone.save(1000);
  // A second life alone has a number that nobody has claimed. It grew from one that somebody has.
  Machine again(quick, weather);
  ASSERT_TRUE(prepare(again).alone);
  ASSERT_EQ(again.start_trainer(), 3U);
  again.save(1010);

  MemoryFileSystem other;
  Machine second(other, safe);
  EXPECT_EQ(second.prepare().attempt, 2U);
  second.start_trainer();
  EXPECT_EQ(second.step, 10);
  second.save(30);
  second.bring_home();

  weather.clear_faults();
  EXPECT_THROW(again.bring_home(), SupersededError);
  Machine restarted(quick, weather);
  EXPECT_THROW(restarted.bring_home(), SupersededError) << "a mirror that was started by hand";
  EXPECT_FALSE(safe.exists(home_file(3, 1010)));

  const PreparedStart next = prepare(restarted);
  EXPECT_FALSE(next.alone);
  EXPECT_EQ(next.newest, (FileId{.attempt = 2, .step = 30})) << "what is home is never given up";
  EXPECT_FALSE(quick.exists(dir_file(2, 1000)));
  EXPECT_TRUE(quick.exists(dir_file(2, 1000).native() + ".damaged-2")) << "and nothing is deleted";
  EXPECT_EQ(restarted.start_trainer(), next.attempt);
  EXPECT_EQ(restarted.step, 30);
  restarted.save(40);
  restarted.bring_home();
  EXPECT_TRUE(safe.exists(home_file(next.attempt, 40)));
}

TEST_F(Starts, AMirrorThatIsStartedAfterwardsKnowsTheClaim) {
  past({10});
  Machine start(quick, safe);
  const PreparedStart prepared = prepare_start(start.files, start.verifier, kDir, *start.home, start.pace);
  EXPECT_TRUE(prepared.fetched);
  Machine machine(quick, safe);
  machine.start_trainer();
  machine.save(20);
  machine.bring_home();
  EXPECT_TRUE(safe.exists(home_file(prepared.attempt, 20)));
}

TEST_F(Starts, AMirrorThatRunsLearnsOfAStartInItsDirectory) {
  Machine machine(quick, safe);
  machine.prepare();
  machine.start_trainer();
  machine.save(10);
  machine.bring_home();
  Machine next(quick, safe);
  prepare_start(next.files, next.verifier, kDir, *next.home, next.pace);
  machine.clock.advance(std::chrono::minutes(2));
  EXPECT_THROW(machine.bring_home(), SupersededError);
  EXPECT_TRUE(machine.mirror.goes_on_here());
  EXPECT_FALSE(read_home_record(*quick.open_directory(kDir, false))->superseded);
  Machine fresh(quick, safe);
  EXPECT_NO_THROW(fresh.bring_home());
}

}}  // namespace holdfast::test
