// Every operation of a run fails once, or from then on for ever; the disk may have done what it denies.
// Nothing acknowledged is lost, nothing is claimed falsely, and training goes on. The quick half of the lane
// of faults, which tests/crash/faults_test.cc goes through with every errno.
#include <gtest/gtest.h>

#include <cerrno>

#include "holdfast/base/error.h"
#include "support/fault_file_system.h"
#include "support/store_life.h"

namespace holdfast::test { namespace {

struct Outcome {
  std::int64_t acknowledged = -1;  // the newest step that anybody was told is durable
  int saves_failed = 0;
  bool started = false;
};

// A trainer: a start that fails ends it, a save that fails does not.
Outcome train(FileSystem& files, std::int64_t from) {
  Outcome outcome;
  Life life(files, {.keep = KeepLast{2}});
  try {
    life.start();
    outcome.started = true;
  } catch (const IoError&) {
    return outcome;
  }
  for (std::int64_t step = from; step < from + 4; ++step) {
    try {
      outcome.acknowledged = life.save(step).step;
    } catch (const IoError&) {
      ++outcome.saves_failed;
      continue;
    }
    try {
      life.store.write_run_state({.phase = RunPhase::running, .step = step, .durable_step = step});
      life.store.append_ledger("{}");
      life.store.apply_retention();
    } catch (const IoError&) {  // tidiness, not work
    }
  }
  return outcome;
}

MemoryFileSystem disk_with_a_past() {
  MemoryFileSystem disk;
  train(disk, 10);
  put_toy(disk, {.step = 15, .attempt = 1});
  rot(disk, name_of_step(15, 1));
  disk.put(in_run("tmp-a0001-step-16-1"), "x");
  return disk;
}

void expect_whole(MemoryFileSystem& disk, std::int64_t acknowledged, const std::string& what) {
  Life life(disk, {.keep = KeepLast{2}});
  const Selection found = life.start();
  ASSERT_TRUE(found.newest) << what;
  EXPECT_GE(found.newest->step, acknowledged) << what;
  const Toy told{
      .step = found.newest->step, .attempt = found.newest->attempt, .ancestry = found.newest->ancestry};
  EXPECT_EQ(disk.get(in_run(found.newest->name)), toy_bytes(told)) << what;
  life.round(found.newest->step + 100);
}

class Faults : public testing::TestWithParam<int> {};

TEST_P(Faults, AtEveryMutation) {
  const MemoryFileSystem past = disk_with_a_past();
  int planned = 0;
  int fired = 0;
  // The store asks for no errno but ENOENT, so the rarer ways to fail are tried with one here.
  const bool thorough = GetParam() == EIO;
  for (const bool for_ever : thorough ? std::vector{false, true} : std::vector{false}) {
    for (const bool after : thorough ? std::vector{false, true} : std::vector{false}) {
      for (int nth = 1;; nth += kStride) {
        MemoryFileSystem disk = past.copy();
        FaultFileSystem files(disk);
        files.fail_mutation(nth, GetParam(),
                            {.for_ever = for_ever, .short_write = nth % 2 == 0, .after = after});
        const Outcome outcome = train(files, 20);
        if (files.faults_fired() == 0) {
          EXPECT_EQ(outcome.saves_failed, 0);
          break;
        }
        ++planned;
        fired += files.faults_fired() > 0 ? 1 : 0;
        const std::string what = "errno " + std::to_string(GetParam()) + ", mutation " + std::to_string(nth) +
                                 (for_ever ? ", for ever" : "") + (after ? ", after it" : "");
        const std::int64_t acknowledged = std::max<std::int64_t>(outcome.acknowledged, 13);
        MemoryFileSystem cut = disk.crash();
        expect_whole(cut, acknowledged, what + ", then a power cut");
        expect_whole(disk, acknowledged, what);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
  EXPECT_EQ(planned, fired);
  EXPECT_GT(planned, 70 / kStride);
}

TEST_P(Faults, OneFaultCostsOneSave) {
  const MemoryFileSystem past = disk_with_a_past();
  for (int nth = 1;; nth += kStride) {
    MemoryFileSystem disk = past.copy();
    FaultFileSystem files(disk);
    Operation failed;
    files.fail_mutation(nth, GetParam());
    const Outcome outcome = train(files, 20);
    if (files.faults_fired() == 0) break;
    if (!outcome.started) continue;
    for (const Operation& operation : files.log()) {
      if (operation.failed) failed = operation;
    }
    const bool run_directory = failed.kind == Op::sync_directory && failed.path == kRun;
    if (run_directory) continue;  // ends all acknowledgement: rule 2
    EXPECT_LE(outcome.saves_failed, 1) << failed.text();
    EXPECT_GE(outcome.acknowledged, outcome.saves_failed == 0 ? 23 : 22) << failed.text();
  }
}

TEST_P(Faults, AtEveryLook) {
  const MemoryFileSystem past = disk_with_a_past();
  for (const Op op : {Op::open_read, Op::read, Op::list, Op::status}) {
    for (const bool for_ever : GetParam() == EIO ? std::vector{false, true} : std::vector{false}) {
      for (int nth = 1;; nth += kStride) {
        MemoryFileSystem disk = past.copy();
        FaultFileSystem files(disk);
        files.fail(op, nth, GetParam(), {.for_ever = for_ever});
        const Outcome outcome = train(files, 20);
        if (files.faults_fired() == 0) break;
        const std::string what = std::string(name_of(op)) + " " + std::to_string(nth);
        if (!outcome.started) {
          EXPECT_TRUE(disk.exists(in_run(name_of_step(13, 1)))) << what;
          EXPECT_TRUE(disk.exists(in_run(name_of_step(15, 1))))
              << what << ": moved although nothing was read";
        }
        MemoryFileSystem cut = disk.crash();
        expect_whole(cut, std::max<std::int64_t>(outcome.acknowledged, 13), what);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Errno, Faults, testing::Values(EIO, ENOSPC),
                         [](const auto& info) { return std::string(strerrorname_np(info.param)); });

}}  // namespace holdfast::test
