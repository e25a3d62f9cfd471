// Rule 6: claims, and rivals that take the directory over at every single operation.
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
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

class FenceTest : public testing::Test {
 public:
  MemoryFileSystem disk;
};
using Rule6Claim = FenceTest;
using Rule6Fence = FenceTest;

TEST_F(Rule6Claim, IsOneMoreThanAnyNameTells) {
  EXPECT_EQ(Life(disk).store.claim(), 1u);
  EXPECT_EQ(Life(disk).store.claim(), 2u);
  disk.put(in_run("attempts/5"), "");
  EXPECT_EQ(Life(disk).store.claim(), 6u);
  put_toy(disk, {.step = 1, .attempt = 10});
  EXPECT_EQ(Life(disk).store.claim(), 11u);
  disk.put(in_run(name_of_step(1, 20) + ".damaged"), "");
  EXPECT_EQ(Life(disk).store.claim(), 21u);
  disk.put(in_run("tmp-a0030-step-1-1"), "");
  EXPECT_EQ(Life(disk).store.claim(), 31u);
  disk.put(in_run("attempts/40.state.json"), "");
  EXPECT_EQ(Life(disk).store.claim(), 41u);
  disk.put(in_run("attempts/junk"), "");
  disk.put(in_run("attempts/060"), "");
  disk.put(in_run("step-70.h5"), "");
  EXPECT_EQ(Life(disk).store.claim(), 42u);
}

TEST_F(Rule6Claim, IsDurableWithItsDirectories) {
  Life(disk).store.claim();
  EXPECT_TRUE(disk.crash().exists(in_run("attempts/1")));
}

TEST_F(Rule6Claim, IsTakenByCreatingItAlone) {
  FaultFileSystem files(disk);
  // Another attempt takes the number between the look and the creation.
  files.set_hook([&, once = true](const Operation& operation) mutable {
    if (operation.kind == Op::create && std::exchange(once, false)) disk.put(in_run("attempts/1"), "");
  });
  EXPECT_EQ(Life(files).store.claim(), 2u);
}

TEST_F(Rule6Claim, ContentDecidesNothing) {
  for (const char* content : {"", "{\"attempt\":99", "\xff\xff\xff"}) {
    MemoryFileSystem other;
    put_toy(other, {.step = 10, .attempt = 1});
    other.put(in_run("attempts/1"), content);
    Life life(other);
    EXPECT_EQ(life.start().newest->step, 10);
    EXPECT_EQ(life.store.attempt(), 2u);
  }
}

TEST_F(Rule6Claim, AFullDiskCannotStopIt) {
  disk.open_directory(kRun, true);
  disk.set_capacity(0);
  EXPECT_EQ(Life(disk).store.claim(), 1u);
}

TEST_F(Rule6Claim, TheLastNumberIsSaid) {
  disk.put(in_run("attempts/" + std::to_string(kHighestNumber)), "");
  EXPECT_THROW(Life(disk).store.claim(), RefusedError);
}

TEST_F(Rule6Claim, ThatFollowsTheLastNumberElsewhereDoesNotBlameThisDirectory) {
  disk.put(in_run("attempts/5"), "");
  EXPECT_THAT(
      [&] { Life(disk).store.claim({}, 0, kHighestNumber + 1); },
      testing::ThrowsMessage<RefusedError>(HasSubstr(
          ": the other end of its mirror holds a file of attempt " + std::to_string(kHighestNumber))));
}

TEST_F(Rule6Claim, OlderTemporaryFilesAreUnlinkedBeforeTheList) {
  Life(disk).store.claim();
  disk.put(in_run("tmp-a0001-step-5-1"), "x");
  disk.put(in_run("attempts/tmp-a0001-state"), "x");
  FaultFileSystem files(disk);
  Life life(files);
  life.store.preflight();
  life.store.claim();
  disk.put(in_run("tmp-a0009-step-5-1"), "x");  // not older
  files.clear_log();
  life.store.recover();
  EXPECT_THAT(disk.names(kRun), Not(Contains("tmp-a0001-step-5-1")));
  EXPECT_THAT(disk.names(kRun), Contains("tmp-a0009-step-5-1"));
  EXPECT_THAT(disk.names(kRun / "attempts"), Not(Contains(StartsWith("tmp"))));
  // After the directory's sync, and only there, the run directory is listed for recovery.
  const auto log = files.log();
  const auto is_sync = [](const Operation& o) { return o.kind == Op::sync_directory; };
  const auto sync = std::find_if(log.begin(), log.end(), is_sync);
  ASSERT_NE(sync, log.end());
  EXPECT_TRUE(std::all_of(sync, log.end(), [](const Operation& o) { return o.kind != Op::unlink; }));
  EXPECT_TRUE(
      std::any_of(sync, log.end(), [](const Operation& o) { return o.kind == Op::list && o.path == kRun; }));
  EXPECT_FALSE(disk.crash().exists(in_run("tmp-a0001-step-5-1")));
}

TEST_F(Rule6Fence, ANewerClaimEndsTheOlderAttempt) {
  Life older(disk);
  older.start();
  older.save(10);
  Life(disk).store.claim();
  for (int i = 0; i < 2; ++i) {
    try {
      older.save(20);
      FAIL();
    } catch (const SupersededError& error) {
      EXPECT_EQ(static_cast<int>(error.exit_code()), 76);
      EXPECT_THAT(error.what(), HasSubstr("attempt 2 has taken over"));
    }
  }
  EXPECT_THROW(older.store.check_claim(), SupersededError);
  EXPECT_THROW(older.store.write_run_state({}), SupersededError);
  EXPECT_FALSE(older.store.holds(20));
  EXPECT_THAT(disk.names(kRun), ElementsAre("attempts", name_of_step(10, 1)));
}

// A standby that reads of the end claims at once, before its copy is written.
TEST_F(Rule6Fence, AnEndThatAnotherMayGoOnFromIsNotUndoneByAQuickSuccessor) {
  for (const RunPhase phase :
       {RunPhase::running, RunPhase::complete, RunPhase::interrupted, RunPhase::failed}) {
    MemoryFileSystem volume;
    FaultFileSystem files(volume);
    Life older(files);
    older.start();
    bool own_file = false;
    files.set_hook([&](const Operation& operation) {
      if (own_file && operation.kind == Op::sync_directory) volume.put(in_run("attempts/2"), "");
      own_file = own_file || operation.kind == Op::rename_over;
    });
    const auto write = [&] { older.store.write_run_state({.phase = phase, .step = 10}); };
    if (phase == RunPhase::interrupted || phase == RunPhase::failed) {
      EXPECT_NO_THROW(write());
    } else {
      EXPECT_THROW(write(), SupersededError);
    }
    EXPECT_TRUE(volume.exists(in_run("attempts/1.state.json")));
    EXPECT_THROW(older.store.check_claim(), SupersededError) << "it is superseded all the same";
  }
}

TEST_F(Rule6Fence, IsLatched) {
  Life older(disk);
  older.start();
  Life(disk).store.claim();
  EXPECT_THROW(older.store.check_claim(), SupersededError);
  disk.open_directory(in_run("attempts"), false)->unlink("2");
  EXPECT_THROW(older.store.check_claim(), SupersededError);
  EXPECT_THROW(older.save(1), SupersededError);
}

TEST_F(Rule6Fence, ALostClaimIsAnEnd) {
  Life life(disk);
  life.start();
  disk.open_directory(in_run("attempts"), false)->unlink("1");
  EXPECT_THROW(life.save(1), SupersededError);
}

// NFS while others change the directory; FUSE over an object store.
TEST_F(Rule6Fence, AListThatLacksTheOwnClaimIsNotBelieved) {
  FaultFileSystem files(disk);
  Life life(files);
  life.start();
  const auto attempts = disk.open_directory(in_run("attempts"), false);
  int lists = 0;
  bool hidden = false;
  files.set_hook([&](const Operation& operation) {
    if (std::exchange(hidden, false)) attempts->rename_new("hidden", "1");
    if (operation.kind != Op::list || operation.path != attempts->path()) return;
    attempts->rename_new("1", "hidden");
    hidden = true;
    ++lists;
  });
  life.round(100);
  life.store.check_claim();
  EXPECT_GE(lists, 3);
  files.set_hook({});
  life.round(200);
}

TEST_F(Rule6Fence, AVanishedTemporaryFileMeansSuperseded) {
  FaultFileSystem files(disk);
  for (const Op op : {Op::open_read, Op::rename_new}) {
    Life life(files);
    life.start();
    files.set_hook([&](const Operation& operation) {
      if (operation.kind != op) return;
      for (const std::string& name : disk.names(kRun)) {
        if (name.starts_with("tmp-")) disk.open_directory(kRun, false)->unlink(name);
      }
    });
    EXPECT_THROW(life.save(10), SupersededError) << name_of(op);
    files.set_hook({});
    EXPECT_THROW(life.save(20), SupersededError);
    EXPECT_THAT(checkpoints(disk), IsEmpty());
  }
}

TEST_F(Rule6Fence, ClocksHaveNoPart) {
  Life older(disk);
  older.clock.shift_wall(std::chrono::hours(24 * 3650));
  older.start();
  older.round(10);
  Life newer(disk);
  newer.clock.shift_wall(-std::chrono::hours(24 * 3650));
  newer.start();
  newer.round(20);
  EXPECT_THROW(older.save(30), SupersededError);
  EXPECT_EQ(Life(disk).store.preflight().newest->step, 20);
}

TEST_F(Rule6Fence, CopyingOnlyTheFilesWorks) {
  {
    Life life(disk);
    life.start();
    life.round(10);
    life.round(20);
  }
  MemoryFileSystem other;
  for (const std::string& name : checkpoints(disk)) other.put(in_run(name), disk.get(in_run(name)));
  Life life(other);
  EXPECT_EQ(life.start().newest->step, 20);
  EXPECT_EQ(life.store.attempt(), 2u);
  life.round(30);
}

// One history of a first attempt that resumes, saves, tidies up. What it was told stands in `acknowledged`.
struct History {
  std::int64_t acknowledged = 10;
  bool superseded = false;

  void live(Life& life) {
    try {
      life.start();
      for (const std::int64_t step : {20, 30, 40}) {
        const CheckpointInfo saved = life.save(step);
        acknowledged = saved.step;
        life.store.write_run_state({.phase = RunPhase::running, .step = step, .durable_step = step});
        life.store.append_ledger("{}");
        life.store.apply_retention();
      }
      life.store.write_run_state({.phase = RunPhase::complete, .step = 40, .durable_step = 40});
    } catch (const SupersededError&) {
      superseded = true;
    }
  }
};

MemoryFileSystem with_a_past() {
  MemoryFileSystem disk;
  Life life(disk, {.keep = KeepLast{2}});
  life.start();
  life.round(9);
  life.round(10);
  disk.put(in_run(name_of_step(99, 1)), toy_bytes({.step = 99, .attempt = 1}));
  rot(disk, name_of_step(99, 1));  // so that recovery has something to move
  return disk;
}

int operations_of_a_history() {
  MemoryFileSystem disk = with_a_past();
  FaultFileSystem files(disk);
  Life life(files, {.keep = KeepLast{2}});
  History history;
  history.live(life);
  EXPECT_FALSE(history.superseded);
  return static_cast<int>(files.log().size());
}

enum class Rival { commits, claims_and_dies, dies_in_recovery };

void rival_at(int operation, int operations, Rival rival) {
  SCOPED_TRACE("operation " + std::to_string(operation));
  MemoryFileSystem disk = with_a_past();
  FaultFileSystem files(disk);
  Life older(files, {.keep = KeepLast{2}});
  Life newer(disk, {.keep = KeepLast{2}});
  History history;
  int at = 0;
  bool acted = false;
  std::int64_t acknowledged_before = 0;
  std::set<std::string> own;  // what the winner has, with its content
  std::map<std::string, std::vector<std::byte>> content;
  files.set_hook([&](const Operation&) {
    if (at++ != operation) return;
    acted = true;
    acknowledged_before = history.acknowledged;
    newer.store.preflight();
    newer.store.claim();
    if (rival == Rival::claims_and_dies) return;
    const Selection chosen = newer.recover();
    ASSERT_TRUE(chosen.newest);
    EXPECT_GE(chosen.newest->step, history.acknowledged) << "an acknowledged step is lost";
    content[chosen.newest->name];
    if (rival == Rival::dies_in_recovery) return;
    newer.round(chosen.newest->step + 1);
    newer.round(chosen.newest->step + 2);
    content[name_of_step(newer.step, newer.store.attempt())];
    content[name_of_step(newer.step - 1, newer.store.attempt())];
    content["attempts/" + state_name(newer.store.attempt())];
    content[ledger_name(newer.store.attempt())];
    content.erase(chosen.newest->name);  // the winner's own retention may take it
  });
  const auto keep = [&] {
    for (auto& [name, bytes] : content) {
      if (bytes.empty() && disk.exists(in_run(name))) bytes = disk.get(in_run(name));
    }
  };
  // Remember the content as soon as the rival has acted.
  history.live(older);
  ASSERT_TRUE(acted);
  keep();
  const AttemptNumber winner = newer.store.attempt();
  if (winner > older.store.attempt() && older.store.attempt() != 0) {
    // Before the very last operation there is no look left, and nothing left to acknowledge.
    EXPECT_TRUE(history.superseded || operation + 1 == operations) << "the older attempt did not notice";
    EXPECT_EQ(history.acknowledged, acknowledged_before) << "acknowledged after the newer claim";
    for (const auto& [name, bytes] : content) {
      ASSERT_TRUE(disk.exists(in_run(name))) << name << " of the winner is gone";
      EXPECT_FALSE(bytes.empty());
    }
    if (rival == Rival::commits) {
      EXPECT_EQ(disk.get(in_run(name_of_step(newer.step, winner))), toy_bytes(newer.toy(newer.step)));
      const auto run = disk.open_directory(kRun, false);
      const auto state = read_run_state(*run);
      ASSERT_TRUE(state);
      EXPECT_EQ(state->attempt, winner);
      EXPECT_NE(state->phase, RunPhase::complete) << "a zombie declared the run complete";
      newer.round(newer.step + 10);  // the winner goes on
    }
  }
  Life third(disk, {.keep = KeepLast{2}});
  const Selection last = third.start();
  ASSERT_TRUE(last.newest);
  EXPECT_GE(last.newest->step, history.acknowledged);
  if (rival == Rival::commits && winner > older.store.attempt()) {
    EXPECT_EQ(last.newest->attempt, winner);
  }
  third.round(last.newest->step + 1);
}

TEST_F(Rule6Fence, ARivalThatCommitsAtEveryOperation) {
  const int operations = operations_of_a_history();
  EXPECT_GT(operations, 100);
  for (int i = 0; i < operations; i += kStride) {
    rival_at(i, operations, Rival::commits);
    if (HasFatalFailure()) return;
  }
}

TEST_F(Rule6Fence, ARivalThatDiesBeforeItsFirstCommit) {
  const int operations = operations_of_a_history();
  for (int i = 0; i < operations; i += kStride) {
    rival_at(i, operations, Rival::claims_and_dies);
    rival_at(i, operations, Rival::dies_in_recovery);
    if (HasFatalFailure()) return;
  }
}

}}  // namespace holdfast::test
