// Where a trainer begins that has two tiers.
#include "holdfast/mirror/start.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
    Machine machine(gone, safe);
    machine.prepare();
    machine.start_trainer();
    for (const std::int64_t step : steps) {
      machine.save(step);
      machine.bring_home();
    }
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

}}  // namespace holdfast::test
