// The newest checkpoint here cannot be read at a start, and HOME has it. The error may pass, so the file keeps its
// name until its copy is there, and is never deleted.
#include <gtest/gtest.h>

#include <cerrno>
#include <functional>
#include <string>
#include <vector>

#include "holdfast/base/log.h"
#include "machine.h"
#include "support/fault_file_system.h"

namespace holdfast::test { namespace {

const FileId kNewest{.attempt = 1, .step = 30};

class UnreadableHere : public testing::Test {
 protected:
  UnreadableHere() {
    set_log_level(LogLevel::off);
    Machine machine(quick, safe);
    machine.prepare();
    machine.start_trainer();
    for (const std::int64_t step : {10, 20, 30}) {
      machine.save(step);
      machine.bring_home();
    }
    bytes = quick.get(here);
  }
  // Where a start without HOME would begin, on a disk that reads well again.
  static std::int64_t newest_on(const MemoryFileSystem& disk) {
    MemoryFileSystem healed = disk.copy();
    FakeClock clock;
    ToyVerifier verifier;
    const auto found = CheckpointStore(healed, clock, {.directory = kDir}, verifier).preflight().newest;
    return found ? found->step : -1;
  }
  static void fail_read(const Operation& operation) {
    if (operation.kind == Op::read && operation.path == dir_file(1, 30))
      throw IoError("read", operation.path, EIO);
  }

  const std::filesystem::path here = dir_file(1, 30);
  const std::filesystem::path aside = here.native() + ".damaged-2";
  MemoryFileSystem quick;
  MemoryFileSystem safe;
  std::vector<std::byte> bytes;
};

TEST_F(UnreadableHere, AFetchThatFailsLeavesTheFileUnderItsName) {
  struct Failure {
    const char* name;
    bool home;  // of HOME, not of the disk here
    std::function<bool(const Operation&)> hits;
  };
  const auto written = [](Op kind) {
    return [kind](const Operation& operation) {
      return operation.kind == kind && operation.path.find("/tmp-a") != std::string::npos;
    };
  };
  const std::vector<Failure> failures{
      {"HOME is away", true,
       [](const Operation& operation) {
         return operation.kind == Op::read && operation.path == home_file(1, 30);
       }},
      {"the disk is full", false, written(Op::create)},
      {"a write", false, written(Op::write)},
      {"the fsync of the copy", false, written(Op::sync_file)},
      {"the read-back of the copy", false, written(Op::open_read)},
  };
  for (const Failure& failure : failures) {
    MemoryFileSystem disk = quick.copy();
    MemoryFileSystem home = safe.copy();
    FaultFileSystem sick(disk);
    FaultFileSystem weather(home);
    int fired = 0;
    const auto fail = [&](const Operation& operation) {
      if (!failure.hits(operation)) return;
      ++fired;
      throw IoError("failed", operation.path, ETIMEDOUT);
    };
    sick.set_hook([&](const Operation& operation) {
      fail_read(operation);
      if (!failure.home) fail(operation);
    });
    weather.set_hook([&](const Operation& operation) {
      if (failure.home) fail(operation);
    });
    Machine machine(sick, weather);
    EXPECT_THROW(machine.prepare(), IoError) << failure.name;
    EXPECT_EQ(fired, 1) << failure.name;
    ASSERT_TRUE(disk.exists(here)) << failure.name;
    EXPECT_EQ(disk.get(here), bytes) << failure.name;
    EXPECT_FALSE(disk.exists(aside)) << failure.name;
    EXPECT_EQ(newest_on(disk), 30) << failure.name;
    EXPECT_EQ(newest_on(disk.crash()), 30) << failure.name;
  }
}

TEST_F(UnreadableHere, ADamagedCopyInHomeLeavesTheFileUnderItsName) {
  safe.flip_bit(home_file(1, 30), kToyBlock + 1);
  FaultFileSystem sick(quick);
  sick.set_hook(fail_read);
  Machine machine(sick, safe);
  EXPECT_EQ(machine.prepare().newest, (FileId{.attempt = 1, .step = 20}));
  EXPECT_EQ(quick.get(here), bytes);
  EXPECT_EQ(newest_on(quick), 30);
}

// The sector is still bad at the next start, which reads the copy, and so on.
TEST_F(UnreadableHere, EachOneIsSetAsideForItsCopyAndNoneIsDeleted) {
  for (const char* const name : {".damaged-2", ".damaged-3", ".damaged-4"}) {
    FaultFileSystem sick(quick);
    bool fetched = false;
    sick.set_hook([&](const Operation& operation) {
      fetched = fetched || operation.kind == Op::rename_new;
      if (!fetched) fail_read(operation);
    });
    Machine machine(sick, safe);
    const PreparedStart start = machine.prepare();
    EXPECT_EQ(start.newest, kNewest);
    EXPECT_TRUE(start.fetched);
    EXPECT_EQ(quick.get(here), bytes);
    EXPECT_TRUE(quick.exists(here.native() + name)) << name;
    machine.start_trainer();
    EXPECT_EQ(machine.step, 30);
    machine.save(machine.step + 10);
    EXPECT_TRUE(quick.exists(here.native() + name)) << name << " is kept by retention";
    // The next start finds the same newest step.
    quick.open_directory(kDir, false)->unlink(checkpoint_name({.attempt = start.attempt, .step = 40}));
  }
}

TEST_F(UnreadableHere, AMachineThatDiesAtAnyOperationLosesNothing) {
  int without_a_name = 0;
  int deaths = 0;
  for (int nth = 1;; ++nth) {
    MemoryFileSystem disk = quick.copy();
    MemoryFileSystem home = safe.copy();
    FaultFileSystem watched(disk);
    int seen = 0;
    bool dead = false;
    watched.set_hook([&](const Operation& operation) {
      if (dead || (operation.mutating && ++seen == nth)) {
        dead = true;
        throw Killed();
      }
      fail_read(operation);
    });
    try {
      Machine machine(watched, home);
      EXPECT_EQ(machine.prepare().newest, kNewest);
    } catch (const Killed&) {
    }
    if (!dead) break;
    ++deaths;
    for (const bool power_cut : {false, true}) {
      MemoryFileSystem left = power_cut ? disk.crash() : disk.copy();
      const std::string what = "operation " + std::to_string(nth) + (power_cut ? ", with a power cut" : "");
      if (left.exists(here)) {
        EXPECT_EQ(newest_on(left), 30) << what;
      } else {
        ++without_a_name;
        ASSERT_TRUE(left.exists(aside)) << what;
        EXPECT_EQ(left.get(aside), bytes) << what;
      }
      MemoryFileSystem home_then = home.copy();
      Machine next(left, home_then);
      const PreparedStart start = next.prepare();
      EXPECT_EQ(start.newest, kNewest) << what;
      EXPECT_EQ(left.get(here), bytes) << what;
      EXPECT_EQ(next.start_trainer(), start.attempt) << what;
      EXPECT_EQ(next.step, 30) << what;
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(deaths, 10);
  // From the rename of the file to the rename of its copy, each with its fsync; HOME has it as well.
  EXPECT_LE(without_a_name, 4);
}

// Nothing is known to be wrong with what an attempt alone has saved.
TEST_F(UnreadableHere, WhatAnAttemptAloneHasSavedIsNeverDeleted) {
  FaultFileSystem weather(safe);
  Machine machine(quick, weather);
  weather.fail(Op::list, 1, EIO, {.for_ever = true});
  ASSERT_TRUE(prepare_start_or_go_alone(machine.files, machine.verifier, kDir, *machine.home, machine.pace,
                                        std::chrono::minutes(1))
                  .alone);
  const AttemptNumber alone = machine.start_trainer();
  machine.save(1000);
  const std::vector<std::byte> saved = quick.get(dir_file(alone, 1000));
  const std::string set_aside = dir_file(alone, 1000).native() + ".damaged-2";
  quick.put(set_aside, "an earlier one");
  weather.clear_faults();
  MemoryFileSystem other;
  Machine second(other, safe);
  ASSERT_EQ(second.prepare().attempt, alone);
  second.start_trainer();
  second.save(40);
  second.bring_home();
  Machine next(quick, safe);
  EXPECT_EQ(next.prepare().newest, (FileId{.attempt = alone, .step = 40}));
  EXPECT_EQ(quick.get_text(set_aside), "an earlier one");
  const std::string next_name = dir_file(alone, 1000).native() + ".damaged-3";
  ASSERT_TRUE(quick.exists(next_name));
  EXPECT_EQ(quick.get(next_name), saved);
}

}}  // namespace holdfast::test
