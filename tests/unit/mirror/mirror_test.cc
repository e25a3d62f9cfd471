// What goes home, in which order, and what counts.
#include "holdfast/mirror/mirror.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "holdfast/base/log.h"
#include "holdfast/mirror/aligned_blocks.h"
#include "machine.h"
#include "support/captured_log.h"
#include "support/fault_file_system.h"

namespace holdfast::test { namespace {

using testing::HasSubstr;
using testing::Not;

class Mirrors : public testing::Test {
 protected:
  Mirrors() { set_log_level(LogLevel::warning); }
  void leave_in_home(std::initializer_list<std::int64_t> steps) {
    Machine machine(quick, safe, {}, 100);
    machine.prepare();
    machine.start_trainer(100);
    for (const std::int64_t step : steps) {
      machine.save(step);
      machine.bring_home();
    }
  }
  // No room for one more checkpoint beside those that are there.
  void fill_home() {
    std::uint64_t used = 0;
    for (const std::string& folder : {kHome, kHome + "/" + kAttemptsDirectory}) {
      for (const std::string& name : safe.names(folder)) {
        if (name != kAttemptsDirectory) used += safe.get(folder + "/" + name).size();
      }
    }
    safe.set_capacity(used + kToyBlock);
  }
  MemoryFileSystem quick;
  MemoryFileSystem safe;
};

TEST_F(Mirrors, BringsTheNewestTwoHomeByteForByte) {
  Machine machine(quick, safe);
  EXPECT_EQ(machine.prepare().attempt, 1U);
  EXPECT_EQ(machine.start_trainer(), 1U);
  for (const std::int64_t step : {10, 20, 30}) machine.save(step);
  machine.bring_home();
  for (const std::int64_t step : {20, 30})
    EXPECT_EQ(safe.get(home_file(1, step)), quick.get(dir_file(1, step)));
  EXPECT_FALSE(safe.exists(home_file(1, 10))) << "a newer one had overtaken it";
  const HomeRecord record = machine.mirror.record();
  EXPECT_EQ(record.newest, (FileId{.attempt = 1, .step = 30}));
  EXPECT_EQ(record.copies, 2);
}

TEST_F(Mirrors, BringsALargeOneHomeByteForByte) {
  Machine machine(quick, safe);
  machine.prepare();
  machine.start_trainer();
  // Two blocks of a copy, and a part of one.
  machine.trainer->commit(
      toy_request({.step = 10, .attempt = 1, .body_blocks = 2 * kCopyBlock / kToyBlock + 3}));
  machine.bring_home();
  EXPECT_GT(safe.get(home_file(1, 10)).size(), 2 * kCopyBlock);
  EXPECT_EQ(safe.get(home_file(1, 10)), quick.get(dir_file(1, 10)));
  EXPECT_TRUE(machine.mirror.record().newest);
}

TEST_F(Mirrors, StartsWithTheNewest) {
  Machine machine(quick, safe);
  machine.prepare();
  machine.start_trainer();
  machine.save(10);
  machine.save(20);
  ASSERT_TRUE(machine.mirror.turn());
  EXPECT_TRUE(safe.exists(home_file(1, 20)));
  EXPECT_FALSE(safe.exists(home_file(1, 10)));
}

TEST_F(Mirrors, HomeIsARunDirectoryOfItsOwn) {
  Machine machine(quick, safe);
  machine.prepare();
  machine.start_trainer();
  machine.save(10);
  machine.save(20);
  machine.bring_home();
  FakeClock clock;
  ToyVerifier verifier;
  CheckpointStore store(safe, clock, {.directory = kHome}, verifier);
  const Selection found = store.preflight();
  ASSERT_TRUE(found.newest);
  EXPECT_EQ(found.newest->step, 20);
  EXPECT_EQ(store.claim(), 2U);
}

TEST_F(Mirrors, ACopyThatIsNotWhatWasWrittenDoesNotCount) {
  Machine machine(quick, safe);
  machine.prepare();
  machine.start_trainer();
  machine.save(10);
  int bad = 0;
  machine.verifier.answer = [&](const ToyVerifier::Question& question) -> std::optional<Verdict> {
    if (question.depth != Verifier::Depth::full || question.step != 10 || bad++ > 0) return std::nullopt;
    return Verdict{.kind = Verdict::Kind::damaged, .reason = "a bit of the copy flipped"};
  };
  EXPECT_THROW(machine.bring_home(), HomeError);
  EXPECT_FALSE(safe.exists(home_file(1, 10)));
  EXPECT_FALSE(machine.mirror.record().newest);
  machine.bring_home();
  EXPECT_TRUE(safe.exists(home_file(1, 10)));
}

TEST_F(Mirrors, ADamagedCheckpointDoesNotGoHome) {
  Machine machine(quick, safe);
  machine.prepare();
  machine.start_trainer();
  machine.save(10);
  machine.save(20);
  quick.flip_bit(dir_file(1, 20), 2 * kToyBlock + 7);
  EXPECT_FALSE(machine.mirror.run()) << "the newest is not home";
  EXPECT_FALSE(safe.exists(home_file(1, 20)));
  EXPECT_EQ(machine.mirror.record().newest, (FileId{.attempt = 1, .step = 10}));
  machine.save(30);
  EXPECT_TRUE(machine.mirror.run()) << "a newer one is";
}

// Its standby must not hear that all of a complete run is home.
TEST_F(Mirrors, ADamagedLastCheckpointIsNoEnd) {
  for (const bool damaged : {false, true}) {
    MemoryFileSystem disk;
    MemoryFileSystem store;
    Machine machine(disk, store);
    machine.prepare();
    machine.start_trainer();
    machine.save(10);
    machine.save(20);
    machine.trainer->write_run_state({.phase = RunPhase::complete, .step = 20});
    if (damaged) disk.flip_bit(dir_file(1, 20), 2 * kToyBlock + 7);
    Mirror mirror(machine.files, machine.verifier, *machine.home, {.directory = kDir}, machine.pace);
    mirror.add_claims({1});
    mirror.finish();
    EXPECT_EQ(mirror.run(), !damaged);
    EXPECT_TRUE(store.exists(home_file(1, 10)));
    const HomeWord word = home_word(*machine.home);
    EXPECT_EQ(word.holder && word.holder->phase == RunPhase::complete, !damaged);
  }
}

TEST_F(Mirrors, AFileOfThatNameFromElsewhereIsNotHome) {
  Machine machine(quick, safe);
  machine.start_trainer();
  machine.save(10);
  machine.prepare();  // HOME knows nothing of attempt 1
  safe.put(home_file(1, 10), std::vector<std::byte>(4096));
  EXPECT_FALSE(machine.mirror.run());
  EXPECT_EQ(safe.get(home_file(1, 10)).size(), 4096U);
}

// A mistyped name, or a volume that is not mounted.
TEST_F(Mirrors, ADirectoryThatIsMissingIsNoSuccess) {
  Machine machine(quick, safe);
  EXPECT_THROW(machine.bring_home(), IoError);
  machine.prepare();
  machine.start_trainer();
  machine.save(10);
  machine.bring_home();
  quick = {};
  EXPECT_THROW(machine.bring_home(), IoError);
}

// A mirror that stays waits for the directory to come, and nothing is lost if it never comes.
TEST_F(Mirrors, ADirectoryThatHasGoneIsNotHome) {
  for (const bool seen : {false, true}) {
    MemoryFileSystem disk;
    Machine machine(disk, safe);
    Mirror mirror(machine.files, machine.verifier, *machine.home, {.directory = kDir}, machine.pace);
    if (seen) machine.start_trainer();
    EXPECT_FALSE(mirror.turn());
    disk = {};
    mirror.finish();
    EXPECT_EQ(mirror.run(), !seen);
    // What an earlier process has prepared was there.
    mirror.add_earlier_claim(1);
    EXPECT_FALSE(mirror.run());
  }
}

TEST_F(Mirrors, ACopyThatRottedIsReplacedAtTheNextStart) {
  {
    Machine machine(quick, safe);
    machine.prepare();
    machine.start_trainer();
    machine.save(10);
    machine.bring_home();
  }
  safe.flip_bit(home_file(1, 10), kToyBlock + 5);
  Machine again(quick, safe);
  again.bring_home();
  EXPECT_EQ(safe.get(home_file(1, 10)), quick.get(dir_file(1, 10)));
  EXPECT_TRUE(safe.exists(home_file(1, 10) + ".damaged"));
}

TEST_F(Mirrors, ACopyThatSomebodyDeletedIsMadeAgain) {
  Machine machine(quick, safe);
  machine.prepare();
  machine.start_trainer();
  machine.save(10);
  machine.bring_home();
  safe.open_directory(kHome, false)->unlink(checkpoint_name({.attempt = 1, .step = 10}));
  machine.clock.advance(std::chrono::minutes(2));
  machine.bring_home();
  EXPECT_TRUE(safe.exists(home_file(1, 10)));
}

TEST_F(Mirrors, HomeKeepsTheNewestAndNeverFewerThanTwo) {
  Machine machine(quick, safe, {}, 2);
  machine.prepare();
  machine.start_trainer();
  for (std::int64_t step = 10; step <= 60; step += 10) {
    machine.save(step);
    machine.bring_home();
    int there = 0;
    for (const std::string& name : safe.names(kHome)) there += parse_checkpoint_name(name) ? 1 : 0;
    EXPECT_GE(there, step >= 20 ? 2 : 1);
    EXPECT_LE(there, 3);
    EXPECT_TRUE(safe.exists(home_file(1, step)));
  }
  EXPECT_THROW(open_home({.place = kHome, .keep = 1}, machine.files, machine.verifier, machine.pace),
               UsageError);
}

// One mirror serves every life of the trainer. A life that went back abandons what is above its start.
TEST_F(Mirrors, HomeKeepsWhatABranchGrewFrom) {
  Machine machine(quick, safe);
  machine.prepare();
  machine.start_trainer(100);
  for (const std::int64_t step : {10, 20, 30, 40}) {
    machine.save(step);
    machine.bring_home();
  }
  machine.prepare();
  machine.trainer.emplace(machine.files, machine.clock,
                          StoreOptions{.directory = kDir, .start = {.step = 20}, .keep = KeepLast{100}},
                          machine.verifier);
  machine.trainer->preflight();
  ASSERT_EQ(machine.trainer->claim(), 2U);
  machine.go_on_from(machine.trainer->recover());
  for (const std::int64_t step : {25, 26}) {
    machine.save(step);
    machine.bring_home();
    EXPECT_TRUE(safe.exists(home_file(2, step)));
    EXPECT_TRUE(safe.exists(home_file(1, 20))) << "step " << step << " grew from it";
  }
  machine.save(27);
  machine.bring_home();
  EXPECT_FALSE(safe.exists(home_file(1, 20))) << "the branch has three newer ones";
  for (const std::int64_t step : {30, 40})
    EXPECT_TRUE(safe.exists(home_file(1, step))) << "another history is left alone";
}

// A mirror that was killed after a copy has deleted nothing yet.
TEST_F(Mirrors, AFullHomeMakesRoomForTheFirstCopyOfALife) {
  leave_in_home({10, 20, 30, 40, 50});
  MemoryFileSystem new_disk;
  Machine machine(new_disk, safe);
  machine.prepare();
  machine.start_trainer();
  machine.save(60);
  fill_home();
  machine.bring_home();
  for (const std::int64_t step : {40, 50}) EXPECT_TRUE(safe.exists(home_file(1, step))) << step;
  EXPECT_TRUE(safe.exists(home_file(2, 60)));
  EXPECT_FALSE(safe.exists(home_file(1, 20)));
}

TEST_F(Mirrors, AFullHomeKeepsAllOfAnotherHistory) {
  leave_in_home({10, 20, 30, 40, 50});
  Machine machine(quick, safe);
  machine.prepare();
  machine.trainer.emplace(machine.files, machine.clock,
                          StoreOptions{.directory = kDir, .start = {.step = 40}, .keep = KeepLast{100}},
                          machine.verifier);
  machine.trainer->preflight();
  machine.trainer->claim();
  machine.go_on_from(machine.trainer->recover());
  machine.save(45);
  fill_home();
  EXPECT_THROW(machine.bring_home(), IoError);
  for (const std::int64_t step : {10, 20, 30, 40, 50}) EXPECT_TRUE(safe.exists(home_file(1, step))) << step;
}

TEST_F(Mirrors, AFileThatHomeCannotDeleteStopsNoCopyAndIsToldOnce) {
  FaultFileSystem stuck(safe);
  Machine machine(quick, stuck, {}, 2);
  machine.prepare();
  machine.start_trainer();
  Mirror mirror(machine.files, machine.verifier, *machine.home, {.directory = kDir}, machine.pace);
  mirror.add_claims({1});
  stuck.set_hook([](const Operation& operation) {
    if (operation.kind == Op::unlink && operation.path == home_file(1, 10))
      throw IoError("unlink", operation.path, EPERM);
  });
  CapturedLog log;
  for (std::int64_t step = 10; step <= 60; step += 10) {
    machine.save(step);
    while (mirror.turn()) {
    }
    EXPECT_TRUE(safe.exists(home_file(1, step)));
  }
  const std::string said = log.text();
  EXPECT_EQ(count_of(said, "unlink " + home_file(1, 10)), 1) << said;
  EXPECT_FALSE(safe.exists(home_file(1, 20)));
  EXPECT_EQ(mirror.record().failure, "");
}

TEST_F(Mirrors, TriesForEverAndSaysItOnce) {
  FaultFileSystem weather(safe);
  int waits = 0;
  Machine machine(quick, weather, [&] {
    if (++waits == 3000) weather.clear_faults();
  });
  machine.prepare();
  machine.start_trainer();
  machine.save(10);
  Mirror mirror(machine.files, machine.verifier, *machine.home, {.directory = kDir}, machine.pace);
  mirror.add_claims({1});
  mirror.finish();
  weather.fail(Op::create, 1, ENOSPC, {.for_ever = true});
  std::string failure;
  CapturedLog log;
  set_log_level(LogLevel::info);
  mirror.run();
  const std::string said = log.text();
  EXPECT_EQ(count_of(said, "tried again until it works"), 1) << said;
  EXPECT_EQ(count_of(said, "works again"), 1) << said;
  EXPECT_TRUE(safe.exists(home_file(1, 10)));
  EXPECT_EQ(read_home_record(*quick.open_directory(kDir, false))->failure, "");
}

TEST_F(Mirrors, TheRecordTellsAFailure) {
  FaultFileSystem weather(safe);
  Machine machine(quick, weather, [&] {
    const auto record = read_home_record(*quick.open_directory(kDir, false));
    if (record && !record->failure.empty()) throw MirrorStopped();
  });
  machine.start_trainer();
  machine.save(10);
  Mirror mirror(machine.files, machine.verifier, *machine.home, {.directory = kDir}, machine.pace);
  weather.fail(Op::write, 1, EIO, {.for_ever = true});
  EXPECT_THROW(mirror.run(), MirrorStopped);
  const auto record = read_home_record(*quick.open_directory(kDir, false));
  ASSERT_TRUE(record);
  EXPECT_THAT(record->failure, HasSubstr(kHome));
  EXPECT_FALSE(record->newest);
}

TEST_F(Mirrors, EndsWhenAnotherMachineTakesHomeOver) {
  Machine machine(quick, safe);
  machine.prepare();
  machine.start_trainer();
  machine.save(10);
  machine.bring_home();
  MemoryFileSystem other;
  Machine second(other, safe);
  EXPECT_EQ(second.prepare().attempt, 2U);
  machine.save(20);
  EXPECT_THROW(machine.bring_home(), SupersededError);
  EXPECT_FALSE(safe.exists(home_file(1, 20)));
  EXPECT_TRUE(read_home_record(*quick.open_directory(kDir, false))->superseded);
}

TEST_F(Mirrors, ATakeOverDuringTheCopyMeansItDoesNotCount) {
  MemoryFileSystem other;
  bool once = true;
  FaultFileSystem watched(safe);
  Machine machine(quick, watched);
  machine.prepare();
  machine.start_trainer();
  machine.save(10);
  watched.set_hook([&](const Operation& operation) {
    if (operation.kind != Op::rename_new || !std::exchange(once, false)) return;
    Machine second(other, safe);
    second.prepare();
    second.start_trainer();
  });
  EXPECT_THROW(machine.bring_home(), SupersededError);
  EXPECT_FALSE(once);
  EXPECT_FALSE(machine.mirror.record().newest);
}

TEST_F(Mirrors, GoesOnAfterItWasKilled) {
  {
    Machine machine(quick, safe);
    machine.start_trainer();
    machine.save(10);
    machine.bring_home();
  }
  Machine again(quick, safe);
  again.bring_home();
  EXPECT_EQ(again.mirror.record().newest, (FileId{.attempt = 1, .step = 10}));
  // The trainer's next life has the number that the second mirror has claimed, or a higher one.
  again.start_trainer();
  again.save(20);
  again.bring_home();
  EXPECT_TRUE(safe.exists(home_file(2, 20)));
}

// The claim of a mirror that begins lies there, and HOME fails behind it once.
TEST_F(Mirrors, AClaimThatSeemedToFailIsStillOwn) {
  int fired = 0;
  for (int nth = 1; nth <= 4; ++nth) {
    for (const bool after : {false, true}) {
      MemoryFileSystem disk;
      MemoryFileSystem home;
      Machine machine(disk, home);
      machine.prepare();
      machine.start_trainer();
      machine.save(10);
      FaultFileSystem faulty(home);
      Machine mirror(disk, faulty);
      faulty.fail(Op::sync_directory, nth, EIO, {.after = after});
      try {
        mirror.bring_home();
      } catch (const IoError&) {
        if (nth > 2) continue;  // of the copy
        EXPECT_NO_THROW(mirror.bring_home()) << "sync " << nth;
      }
      fired += faulty.faults_fired();
    }
  }
  EXPECT_EQ(fired, 4);
}

TEST_F(Mirrors, ADirectoryThatIsBehindHomeIsRefused) {
  MemoryFileSystem other;
  live(other, safe, {10});
  Machine stranger(quick, safe);
  stranger.start_trainer();
  stranger.save(5);
  EXPECT_THROW(stranger.bring_home(), SupersededError);
  EXPECT_EQ(safe.names(kHome + "/attempts").size(), 1U) << "nothing may be claimed";
}

TEST_F(Mirrors, AnotherLifeOfTheTrainerIsClaimedBesideACopy) {
  bool inside = false;
  Machine* self = nullptr;
  AttemptNumber claimed = 0;
  Machine machine(quick, safe, [&] {
    if (self == nullptr || !inside) return;
    inside = false;
    claimed = self->prepare().attempt;
  });
  machine.prepare();
  machine.start_trainer();
  machine.save(10);
  self = &machine;
  inside = true;
  machine.bring_home();
  EXPECT_EQ(claimed, 2U);
  EXPECT_TRUE(safe.exists(home_file(1, 10))) << "the copy in flight is finished";
  EXPECT_EQ(machine.start_trainer(), 2U);
  machine.save(20);
  machine.bring_home();
  EXPECT_TRUE(safe.exists(home_file(2, 20)));
}

// The planner waits that long before an end, and then there is no limit.
TEST_F(Mirrors, TheWayHomeIsMeasuredWithoutTheLimit) {
  Machine machine(quick, safe, {}, 3, 0.001);
  machine.prepare();
  machine.start_trainer();
  machine.save(10);
  const Duration before = machine.clock.slept();
  machine.bring_home();
  EXPECT_GT(machine.clock.slept() - before, std::chrono::seconds(10));
  EXPECT_EQ(machine.mirror.record().took_ms, 1000) << "until the mirror looks";
}

TEST_F(Mirrors, LimitsItsSpeed) {
  FakeClock clock;
  Pace pace(clock, 10);
  for (int i = 0; i < 100; ++i) pace.moved(1'000'000);
  EXPECT_NEAR(std::chrono::duration<double>(clock.slept()).count(), 10, 0.2);
  pace.lift_limit();
  const Duration before = clock.slept();
  pace.moved(1'000'000'000);
  EXPECT_EQ(clock.slept(), before);
}

TEST_F(Mirrors, TheWorkOnABlockIsAPartOfItsTime) {
  FakeClock clock;
  Pace pace(clock, 10);
  const SteadyTime began = clock.now();
  for (int i = 0; i < 100; ++i) {
    clock.advance(std::chrono::milliseconds(60));
    pace.moved(1'000'000);
  }
  EXPECT_NEAR(std::chrono::duration<double>(clock.now() - began).count(), 10, 0.2);
  clock.advance(std::chrono::minutes(1));
  const SteadyTime paused = clock.now();
  for (int i = 0; i < 100; ++i) pace.moved(1'000'000);
  EXPECT_NEAR(std::chrono::duration<double>(clock.now() - paused).count(), 10, 0.2)
      << "a pause saves nothing up";
}

}}  // namespace holdfast::test
