// Starts and standbys of machines whose disks fill up, and whose HOME hangs or loses names.
#include <gtest/gtest.h>

#include <cerrno>

#include "holdfast/base/log.h"
#include "holdfast/mirror/home_notes.h"
#include "machine.h"
#include "support/fault_file_system.h"

namespace holdfast::test { namespace {

std::size_t checkpoints_in(const MemoryFileSystem& disk, const std::filesystem::path& dir) {
  std::size_t n = 0;
  for (const auto& name : disk.names(dir)) n += name.ends_with(".h5") ? 1 : 0;
  return n;
}

class DiskOfAStandby : public testing::Test {
 protected:
  MemoryFileSystem quick, other, safe;
  Machine standby{other, safe};
  DirectoryHome ahead_home{{.place = kHome}, standby.files, standby.verifier, standby.pace};
  FetchAhead ahead{standby.files, standby.verifier, kDir, ahead_home, standby.pace, {}};
  std::int64_t step = 0;
};

// Its copies tell of which attempts they grew, so that retention reaches beyond the newest one.
TEST_F(DiskOfAStandby, KeepsNoMoreThanTheHolders) {
  for (int life = 1; life <= 6; ++life) {
    Machine holder(quick, safe);
    holder.prepare();
    holder.start_trainer();
    for (int i = 0; i < 4; ++i) {
      holder.save(step += 10);
      holder.bring_home();
      ahead.fetch();
    }
  }
  EXPECT_LE(checkpoints_in(other, kDir), 4U);
}

TEST_F(DiskOfAStandby, ForFiveCheckpointsIsEnoughToTakeOver) {
  AttemptNumber last = 0;
  bool limited = false;
  for (int life = 1; life <= 3; ++life) {
    Machine holder(quick, safe);
    holder.prepare();
    last = holder.start_trainer();
    for (int i = 0; i < 4; ++i) {
      holder.save(step += 10);
      holder.bring_home();
      if (!limited) {
        ahead.fetch();
        const auto bytes = other.get(dir_file(last, step)).size();
        other.set_capacity(5 * bytes + 8192);
        limited = true;
        continue;
      }
      EXPECT_NO_THROW(ahead.fetch());
    }
  }
  const AttemptNumber claimed = standby.home->claim_after(standby.home->highest());
  ASSERT_NE(claimed, 0U);
  for (int tries = 0; tries < 3; ++tries) {
    EXPECT_NO_THROW(standby.prepare(claimed));
  }
}

// HOME answers and has a newer checkpoint, but the disk here is full: no reason to go back behind it.
TEST(StartOnAFullDisk, GoesNotBehindWhatHomeHasShown) {
  MemoryFileSystem quick, other, safe;
  live(quick, safe, {10});
  live(other, safe, {1000});
  const auto bytes = quick.get(dir_file(1, 10)).size();
  quick.set_capacity(bytes + bytes / 2 + 4096);
  Machine machine(quick, safe);
  EXPECT_THROW(prepare_start_or_go_alone(machine.files, machine.verifier, kDir, *machine.home, machine.pace,
                                         std::chrono::minutes(10)),
               IoError);
}

// A copy whose name no sync has made durable is made once more.
TEST(NamesInHome, NeverGoAway) {
  for (const bool killed : {true, false}) {
    MemoryFileSystem quick, safe;
    FaultFileSystem weather(safe);
    live(quick, weather, {10, 20});
    ASSERT_TRUE(safe.crash().exists(home_file(1, 20)));
    // The mirror is started again, and HOME fails for a moment.
    Machine again(quick, weather);
    bool armed = false, fired = false;
    weather.set_hook([&](const Operation& op) {
      if (op.kind == Op::open_read && op.path == home_file(1, 20)) armed = true;
      if (armed && !fired && op.kind == Op::sync_directory && op.path == kHome) {
        fired = true;
        throw IoError("fsync", op.path, EIO);
      }
      if (fired && op.kind == (killed ? Op::write : Op::rename_over) && op.path.find(kHome) == 0) {
        if (killed) throw Killed();
        throw IoError("rename", op.path, EIO);
      }
    });
    EXPECT_THROW(again.bring_home(), IoError);
    EXPECT_TRUE(fired);
    EXPECT_ANY_THROW(again.bring_home()) << "the disturbed second try";
    // The machine with its disk is gone.
    MemoryFileSystem fresh;
    Machine next(fresh, safe);
    const auto start = next.prepare();
    EXPECT_EQ(start.newest, (FileId{.attempt = 1, .step = 20}))
        << (killed ? "killed" : "EIO") << ": goes on from step " << start.newest->step;
  }
}

// HOME hangs behind the claim of a start: the supervisor kills that mirror, and its successor goes on alone.
TEST(HangingHome, TheClaimOfAMirrorThatWasKilledIsOwn) {
  MemoryFileSystem quick, safe;
  FaultFileSystem weather(safe);
  live(quick, weather, {10});
  StartTries tries;
  const auto hang_at = [&](auto&& here) {
    Machine hangs(quick, weather);
    weather.set_hook(here);
    EXPECT_THROW(internal::try_start(hangs.files, hangs.verifier, kDir, *hangs.home, hangs.pace, {}, tries),
                 Killed);
    weather.set_hook({});
  };
  hang_at([&](const Operation& op) {
    if (!tries.claims.empty() && op.kind == Op::list && op.path == kHome) throw Killed();
  });
  EXPECT_FALSE(tries.claims.empty());
  Machine alone(quick, weather);
  const auto start = go_alone_without(alone.files, alone.verifier, kDir, *alone.home, alone.pace, tries);
  alone.mirror.go_alone(start.attempt);
  for (const AttemptNumber claim : start.claims) alone.mirror.add_earlier_claim(claim);
  alone.mirror.await_trainer(start.attempt);
  alone.start_trainer();
  alone.save(30);
  EXPECT_NO_THROW(alone.bring_home());
}

TEST(HangingHome, InTheFetchOfANewerCheckpointIsWaitedFor) {
  MemoryFileSystem quick, other, safe;
  FaultFileSystem weather(safe);
  live(quick, weather, {10});
  live(other, safe, {20});
  StartTries tries;
  Machine hangs(quick, weather);
  weather.set_hook([](const Operation& op) {
    if (op.kind == Op::read && op.path.ends_with(".h5")) throw Killed();
  });
  EXPECT_THROW(internal::try_start(hangs.files, hangs.verifier, kDir, *hangs.home, hangs.pace, {}, tries),
               Killed);
  EXPECT_THROW(go_alone_without(hangs.files, hangs.verifier, kDir, *hangs.home, hangs.pace, tries),
               HomeError);
}

// One bad sector keeps neither the end of the run nor the older files away.
TEST(UnreadableCheckpoint, ThatIsNotTheNewestKeepsNoMirrorFromItsEnd) {
  MemoryFileSystem quick, safe;
  FaultFileSystem sick(quick);
  Machine machine(sick, safe);
  const auto start = machine.prepare();
  machine.start_trainer();
  for (const std::int64_t step : {10, 20, 30}) machine.save(step);
  sick.set_hook([](const Operation& operation) {
    if (operation.kind == Op::read && operation.path == dir_file(1, 20))
      throw IoError("read", operation.path, EIO);
  });
  Mirror mirror(machine.files, machine.verifier, *machine.home, {.directory = kDir}, machine.pace);
  mirror.add_claims(start.claims);
  mirror.finish();
  EXPECT_TRUE(mirror.run());
  EXPECT_TRUE(safe.exists(home_file(1, 30)));
  EXPECT_TRUE(safe.exists(home_file(1, 10)));
}

}}  // namespace holdfast::test
