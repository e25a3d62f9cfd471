// Power cuts before every mutating operation of a run's whole life, each leaving any part of what was not
// synced yet. On every disk the real recovery runs, then a further save, then a second cut. Never lost, stuck
// or silent.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "holdfast/base/error.h"
#include "support/fault_file_system.h"
#include "support/store_life.h"

namespace holdfast::test { namespace {

constexpr std::size_t kAllSubsetsUpTo = 5;

class Crashes : public testing::Test {
 public:
  // Runs `history`, and cuts the power before each of its mutations and after the last.
  template <class Work>
  void explore(const Work& history) {
    files.set_hook([&](const Operation& operation) {
      if (operation.mutating && mutations++ % kStride == 0) cut_everywhere("before " + operation.text());
    });
    history();
    files.set_hook({});
    cut_everywhere("at the end");
  }

  void cut_everywhere(const std::string& where) {
    std::set<std::string> open;
    for (std::size_t known = SIZE_MAX; known != open.size();) {
      known = open.size();
      for (const std::string& thing : disk.unsynced(open)) open.insert(thing);
    }
    const std::vector<std::string> things(open.begin(), open.end());
    std::set<std::set<std::string>> subsets{{}, open};
    if (things.size() <= kAllSubsetsUpTo) {
      for (unsigned bits = 0; bits < 1u << things.size(); ++bits) {
        std::set<std::string> kept;
        for (std::size_t i = 0; i < things.size(); ++i) {
          if ((bits >> i & 1) != 0) kept.insert(things[i]);
        }
        subsets.insert(std::move(kept));
      }
    } else {
      for (const std::string& thing : things) {
        subsets.insert({thing});
        std::set<std::string> without = open;
        without.erase(thing);
        subsets.insert(std::move(without));
      }
    }
    for (const auto& kept : subsets) {
      std::string what = where + ", of " + std::to_string(open.size()) + " open things kept";
      for (const std::string& thing : kept) what += " [" + thing + "]";
      MemoryFileSystem left = disk.crash_keeping(kept);
      check(left, what);
      ++states;
    }
  }

  void check(MemoryFileSystem& left, const std::string& what) {
    const auto state = [&] {
      const auto run = left.open_directory(kRun, false);
      return run ? read_run_state(*run) : std::nullopt;
    }();
    Life next(left, {.keep = KeepLast{2}, .attempts_kept = attempts_kept});
    try {
      const Selection found = next.start();
      ASSERT_GT(next.store.attempt(), claimed) << "NUMBER TAKEN TWICE " << what;
      const FileId newest =
          found.newest ? FileId{.attempt = found.newest->attempt, .step = found.newest->step} : FileId{};
      ASSERT_GE(newest, acknowledged) << "LOST " << what;
      if (state) {
        ASSERT_LE(state->durable_step, found.newest ? found.newest->step : -1) << "FALSE STATE " << what;
      }
      if (found.newest) {
        const Toy told{.step = newest.step, .attempt = newest.attempt, .ancestry = found.newest->ancestry};
        ASSERT_EQ(left.get(in_run(found.newest->name)), toy_bytes(told)) << "SILENT " << what;
      }
      const std::int64_t step = newest.step + 1;
      next.round(step);
      MemoryFileSystem again = left.crash();
      Life after(again, {.keep = KeepLast{2}});
      const Selection second = after.start();
      ASSERT_TRUE(second.newest) << "LOST after a second cut, " << what;
      ASSERT_EQ(second.newest->step, step) << "LOST after a second cut, " << what;
      ASSERT_EQ(second.newest->attempt, next.store.attempt());
      for (const std::string& name : again.names(kRun)) {
        ASSERT_FALSE(name.starts_with("tmp-")) << name << " stays, " << what;
      }
    } catch (const Error& error) {
      FAIL() << "STUCK " << what << ": " << error.what();
    }
  }

  void acknowledge(const CheckpointInfo& saved) {
    acknowledged = {.attempt = saved.attempt, .step = saved.step};
  }
  // As Life::round, noting the acknowledgement the moment it happens.
  void round(Life& life, std::int64_t step) {
    const CheckpointInfo saved = life.save(step);
    acknowledge(saved);
    life.store.write_run_state(
        {.phase = RunPhase::running, .step = step, .durable_step = step, .checkpoint = saved.name});
    life.store.append_ledger("{}");
    life.store.apply_retention();
  }

  MemoryFileSystem disk;
  FaultFileSystem files{disk};
  FileId acknowledged;
  AttemptNumber claimed = 0;  // durably
  AttemptNumber attempts_kept = kAttemptsKept;
  int states = 0;
  int mutations = 0;
};

TEST_F(Crashes, FirstSaveAndLaterOnes) {
  explore([&] {
    Life life(files, {.keep = KeepLast{2}});
    life.start();
    for (const std::int64_t step : {10, 20, 30, 40}) {
      round(life, step);
      if (HasFatalFailure()) return;
    }
  });
  RecordProperty("states", states);
  EXPECT_GT(states, 500 / kStride);
}

TEST_F(Crashes, AnAttemptThatMakesRoomForItsFirstSave) {
  {
    Life life(disk, {.keep = KeepLast{100}});
    life.start();
    for (const std::int64_t step : {10, 20, 30, 40}) round(life, step);
  }
  Life life(files, {.keep = KeepLast{2}, .makes_room = true});
  life.start();
  files.fail(Op::reserve, 1, ENOSPC);
  explore([&] { round(life, 50); });
  EXPECT_EQ(checkpoints(disk).size(), 2u);
  EXPECT_GT(states, 50 / kStride);
}

TEST_F(Crashes, AnAttemptThatGoesOn) {
  {
    Life life(disk, {.keep = KeepLast{2}});
    life.start();
    for (const std::int64_t step : {10, 20, 30}) life.round(step);
    acknowledged = {.attempt = 1, .step = 30};
  }
  explore([&] {
    for (int attempt = 0; attempt < 2; ++attempt) {
      Life life(files, {.keep = KeepLast{2}});
      const std::int64_t from = life.start().newest->step;
      for (const std::int64_t step : {from + 1, from + 2}) {
        round(life, step);
        if (HasFatalFailure()) return;
      }
    }
  });
  RecordProperty("states", states);
  EXPECT_GT(states, 500 / kStride);
}

TEST_F(Crashes, OldAttemptsAreForgotten) {
  attempts_kept = 2;
  {
    Life life(disk, {.keep = KeepLast{2}, .attempts_kept = 2});
    life.start();
    for (const std::int64_t step : {10, 20}) life.round(step);
    acknowledged = {.attempt = 1, .step = 20};
    claimed = 1;
  }
  explore([&] {
    for (int attempt = 2; attempt < 7; ++attempt) {
      Life life(files, {.keep = KeepLast{2}, .attempts_kept = 2});
      life.store.preflight();
      claimed = life.store.claim();
      const std::int64_t from = life.recover().newest->step;
      if (attempt != 4) round(life, from + 1);  // that one dies before its first save
      if (HasFatalFailure()) return;
    }
  });
  EXPECT_THAT(disk.names(kRun / "attempts"), testing::Not(testing::Contains("4")));
  EXPECT_THAT(disk.names(kRun / "attempts"), testing::IsSupersetOf({"5", "6"}));
  RecordProperty("states", states);
  EXPECT_GT(states, 500 / kStride);
}

TEST_F(Crashes, RecoveryFromDamage) {
  {
    Life life(disk, {.keep = KeepLast{5}});
    life.start();
    for (const std::int64_t step : {10, 20, 30, 40, 50}) life.round(step);
    life.store.write_run_state({.phase = RunPhase::running});  // what it records is no part of this test
  }
  for (const std::int64_t step : {30, 40, 50}) rot(disk, name_of_step(step, 1));
  disk.put(in_run("tmp-a0001-step-60-1"), "x");
  disk.put(in_run("attempts/tmp-a0001-state"), "x");
  acknowledged = {.attempt = 1, .step = 20};
  explore([&] {
    Life life(files, {.keep = KeepLast{2}});
    ASSERT_EQ(life.start().newest->step, 20);
    for (const std::int64_t step : {21, 22, 23}) {
      round(life, step);
      if (HasFatalFailure()) return;
    }
  });
  RecordProperty("states", states);
  EXPECT_GT(states, 500 / kStride);
}

TEST_F(Crashes, AMissingFileSyncWouldBeSeen) {
  // The disk itself: what a commit without its fsync leaves must differ from what one with it leaves.
  Life life(disk);
  life.start();
  // Written and named durably, but its data was never synced.
  const auto run = disk.open_directory(kRun, false);
  const auto file = run->open(name_of_step(10, 1), OpenMode::create_direct);
  write_toy(*file, life.toy(10));
  run->sync();
  EXPECT_EQ(Life(disk).store.preflight().newest->step, 10);
  MemoryFileSystem left = disk.crash_keeping({});
  EXPECT_THROW(Life(left).store.preflight(), RefusedError) << "the cut left data that nothing had synced";
}

}}  // namespace holdfast::test
