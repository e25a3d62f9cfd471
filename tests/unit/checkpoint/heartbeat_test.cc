// What people and probes learn of a run while it trains, and what that must never cost.
#include "holdfast/checkpoint/internal/heartbeat.h"

#include "holdfast/base/log.h"
#include "holdfast/store/names.h"
#include "rig.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using internal::Heartbeat;
using internal::Pace;

class Beats : public testing::Test {
 protected:
  Beats() { disk_.faults.open_directory(kRun, true)->open_directory("attempts", true); }
  std::optional<RunProgress> read() {
    return read_progress(*disk_.disk.open_directory(kRun, false), AttemptNumber{1});
  }
  std::unique_ptr<Heartbeat> start(Heartbeat::Sample sample) {
    auto heart = std::make_unique<Heartbeat>();
    heart->start(disk_.faults, kRun, AttemptNumber{1}, disk_.clock, std::move(sample), 1ms, 1ms);
    return heart;
  }

  RunDisk disk_;
};

TEST_F(Beats, TellWhereTheTrainingStandsUntilTheEnd) {
  std::atomic<std::int64_t> step{5};
  const auto heart = start([&](RunProgress& now) {
    now.step = step;
    return true;
  });
  ASSERT_TRUE(soon([&] { return read() && read()->beat > 3; })) << "it goes on while no step is taken";
  EXPECT_EQ(read()->step, 5);
  EXPECT_EQ(read()->phase, TrainingPhase::training);
  heart->ending();
  ASSERT_TRUE(soon([&] { return read()->phase == TrainingPhase::saving; }));
  step = 9;
  heart->stop(Heartbeat::kPatience);
  EXPECT_EQ(read()->step, 9) << "the last beat";
  const std::int64_t last = read()->beat;
  std::this_thread::sleep_for(5ms);
  EXPECT_EQ(read()->beat, last);
}

TEST_F(Beats, AnAttemptThatWasTakenOverIsSilent) {
  std::atomic<int> asked{0};
  const auto heart = start([&](RunProgress&) {
    ++asked;
    return false;
  });
  ASSERT_TRUE(soon([&] { return asked > 3; }));
  EXPECT_FALSE(read());
}

TEST_F(Beats, ARunShorterThanTheFirstLeavesNoFile) {
  Heartbeat heart;
  heart.start(disk_.faults, kRun, AttemptNumber{1}, disk_.clock, [](RunProgress&) { return true; });
  heart.stop(Heartbeat::kPatience);
  EXPECT_FALSE(read());
}

TEST_F(Beats, ADiskThatRefusesEndsNothing) {
  disk_.faults.fail(Op::write, 1, ENOSPC, {.for_ever = true});
  std::atomic<int> asked{0};
  const auto heart = start([&](RunProgress&) {
    ++asked;
    return true;
  });
  ASSERT_TRUE(soon([&] { return asked > 3; }));
  disk_.faults.clear_faults();
  ASSERT_TRUE(soon([&] { return read().has_value(); }));
}

TEST_F(Beats, ADiskThatHangsDelaysNoEnd) {
  Gate gate;
  std::atomic<bool> hangs{true};
  disk_.faults.set_hook([&](const Operation& operation) {
    if (operation.kind == Op::write && hangs.exchange(false)) gate.pass();
  });
  std::atomic<int> asked{0};
  auto heart = start([&](RunProgress&) {
    ++asked;
    return true;
  });
  gate.await_arrival();
  heart->stop(1ms);
  heart.reset();
  const int before = asked;
  gate.open();
  ASSERT_TRUE(soon([&] { return read().has_value(); })) << "what hung goes on by itself";
  std::this_thread::sleep_for(5ms);
  EXPECT_EQ(asked, before) << "the run that it would ask is gone";
}

TEST(PaceOfSteps, IsThatOfTheLastMinute) {
  Pace pace;
  RunProgress progress;
  SteadyTime now{};
  pace.note(now, 100);
  for (int beat = 1; beat <= 12; ++beat) {  // two minutes at 5 steps a second, then at 10
    now += 10s;
    pace.note(now, beat <= 6 ? 100 + beat * 50 : 400 + (beat - 6) * 100);
  }
  pace.put(progress);
  EXPECT_NEAR(progress.steps_per_second.value(), 10, 0.01);
  EXPECT_EQ(progress.still_ms, 0);
  pace.note(now + 20s, 1000);
  pace.note(now + 30s, 1000);
  pace.put(progress);
  EXPECT_EQ(progress.still_ms, 30'000);
  pace.note(now + 60s, 1000, false);  // an evaluation, or the others' start: no step is expected
  pace.note(now + 70s, 1000);
  pace.put(progress);
  EXPECT_EQ(progress.still_ms, 10'000);
}

// The Checkpointer's own, on the real file system: loss, steps and saves arrive.
TEST(BeatsOfARun, TellLossAndSaves) {
  const TemporaryFolder folder;
  CheckpointerOptions options;
  options.directory = folder.path() / "run";
  options.every = {SaveEvery::steps(2)};
  options.notices.hear_signals = false;
  options.notices.cloud = false;
  Attempt attempt(options);
  attempt.checkpointer.expect_last_step(50);
  attempt.train_to(5);
  const auto run = FileSystem::real().open_directory(options.directory, false);
  std::optional<RunProgress> told;
  ASSERT_TRUE(soon([&] { return (told = read_progress(*run, 1)).has_value(); }));
  EXPECT_EQ(told->step, 5);
  EXPECT_EQ(told->last_step, 50);
  EXPECT_TRUE(told->loss.has_value());
  EXPECT_EQ(told->next_save_step, 6);
  EXPECT_GE(told->saves, 1);
  attempt.train_to(6);
  EXPECT_EQ(attempt.checkpointer.finish(), 0);
  told = read_progress(*run, 1);
  EXPECT_EQ(told->step, 6);
  EXPECT_EQ(told->durable_step, 6);
  EXPECT_EQ(told->phase, TrainingPhase::saving);
  show_log_times(false);  // other tests compare whole lines
}

}}  // namespace holdfast::test
