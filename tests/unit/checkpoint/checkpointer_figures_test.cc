// What saves cost and what is at risk, on a clock that only the test moves.
#include <cmath>
#include <thread>

#include "holdfast/ledger/save_figures.h"
#include "holdfast/planning/step_times.h"
#include "holdfast/store/run_state.h"
#include "holdfast/writing/save_book.h"
#include "slow_disk.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

bool writes_checkpoint(const Operation& operation, Op kind) {
  return operation.kind == kind && operation.path.find("step-") != std::string::npos;
}

// A step takes `time`.
Decision timed_step(Attempt& run, Volume& volume, Duration time) {
  volume.clock.advance(time);
  return run.step();
}

TEST(Figures, OfOneSaveAreMeasured) {
  Volume volume;
  Attempt run(volume.options({SaveEvery::steps(2)}));
  run.source.on_copy = [&] { volume.clock.advance(10ms); };
  bool written = false;
  Gate staged;
  volume.faults.set_hook([&](const Operation& operation) {
    if (writes_checkpoint(operation, Op::create)) staged.pass();
    if (writes_checkpoint(operation, Op::write) && !std::exchange(written, true)) volume.clock.advance(30ms);
    if (writes_checkpoint(operation, Op::sync_file)) volume.clock.advance(7ms);
  });
  timed_step(run, volume, 1s);
  timed_step(run, volume, 1s);
  ASSERT_TRUE(run.decision.saved);
  staged.open();
  ASSERT_EQ(run.decision.save.wait(), SaveStatus::durable);
  const SaveFigures figures = run.decision.save.figures();
  EXPECT_EQ(figures.bytes, volume.disk.get(volume.path(run.decision.save.checkpoint())).size());
  EXPECT_EQ(figures.blocked, 10ms);
  EXPECT_EQ(figures.staging, 10ms);
  EXPECT_EQ(figures.queued, 0ms);
  EXPECT_EQ(figures.write, 30ms);
  EXPECT_EQ(figures.commit, 7ms);
  EXPECT_EQ(figures.risk_steps, 2);
  EXPECT_EQ(figures.risk_time, 2s + 47ms);
  const RunFigures all = run.checkpointer.figures();
  EXPECT_EQ(all.durable, 1);
  EXPECT_EQ(all.last_step, 2);
  EXPECT_EQ(all.last.commit, 7ms);
  EXPECT_EQ(all.blocked, 10ms);
  EXPECT_EQ(all.bytes, figures.bytes);
  EXPECT_EQ(all.elapsed, 2s + 47ms);
  EXPECT_EQ(all.beside, std::nullopt);
  EXPECT_EQ(all.lost(), std::nullopt) << "one save says nothing about the steps beside it";
}

TEST(Figures, OfALateSaveCountOnlyWhatTheTrainingWaited) {
  Volume volume;
  Attempt run(volume.options({SaveEvery::steps(2)}));
  for (int i = 0; i < 2; ++i) {
    run.checkpointer.before_update();
    if (i == 1) run.source.on_copy = [&] { volume.clock.advance(3ms); };  // the early part, and preparing
    timed_step(run, volume, 1s);
  }
  const SaveHandle save = run.decision.save;
  EXPECT_EQ(save.figures().blocked, 6ms);
  volume.clock.advance(500ms);  // forward and backward
  run.checkpointer.before_update();
  EXPECT_EQ(save.wait(), SaveStatus::durable);
  EXPECT_EQ(save.figures().blocked, 6ms);
  EXPECT_EQ(save.figures().staging, 506ms);
  EXPECT_EQ(run.checkpointer.figures().blocked, 6ms);
}

TEST(Figures, WorkAtRiskGrowsUntilASaveIsDurable) {
  Volume volume;
  Attempt run(volume.options());
  EXPECT_EQ(run.checkpointer.figures().risk_steps, 0);
  volume.clock.advance(1h);  // nothing has been done yet
  EXPECT_EQ(run.checkpointer.figures().risk_time, 0s);
  timed_step(run, volume, 1s);
  EXPECT_EQ(run.checkpointer.figures().risk_steps, 1);
  SlowDisk disk(volume);
  timed_step(run, volume, 1s);
  const SaveHandle save = run.checkpointer.save();
  disk.await(1);
  timed_step(run, volume, 1s);
  volume.clock.advance(500ms);
  EXPECT_EQ(run.checkpointer.figures().risk_steps, 3);
  disk.finish();
  ASSERT_EQ(save.wait(), SaveStatus::durable);
  EXPECT_EQ(save.figures().risk_steps, 3);
  const RunFigures now = run.checkpointer.figures();
  EXPECT_EQ(now.risk_steps, 1) << "step 3 is not in it";
  EXPECT_EQ(now.risk_time, 1s + 500ms) << "since the training stood at step 2";
  EXPECT_EQ(now.most_risk_steps, 3);
  EXPECT_EQ(now.most_risk_time, save.figures().risk_time);
  disk.finish();
  EXPECT_EQ(run.checkpointer.finish(), 0);
  EXPECT_EQ(run.checkpointer.figures().risk_steps, 0);
  EXPECT_EQ(run.checkpointer.figures().risk_time, 0s);
}

TEST(Figures, AResumedRunBeginsWithNothingAtRisk) {
  Volume volume;
  {
    Attempt run(volume.options());
    run.train_to(5);
    EXPECT_EQ(run.checkpointer.finish(), 0);
  }
  Attempt run(volume.options());
  EXPECT_EQ(run.checkpointer.figures().risk_steps, 0);
  timed_step(run, volume, 2s);
  EXPECT_EQ(run.checkpointer.figures().risk_steps, 1);
  EXPECT_EQ(run.checkpointer.figures().risk_time, 2s);
  EXPECT_EQ(run.checkpointer.figures().last_step, -1) << "of this attempt";
}

// A save, and four steps of 100 ms and a little more beside its write.
void train_beside_write(Attempt& run, Volume& volume, SlowDisk& disk, Duration slower) {
  const SaveHandle save = run.checkpointer.save();
  for (int step = 0; step < 4; ++step) timed_step(run, volume, 100ms + slower);
  disk.finish();
  ASSERT_EQ(save.wait(), SaveStatus::durable);
}

// The writer tidies up a little longer than the test knows; two windows that meet are one.
void train_until_windows_closed(Attempt& run, Volume& volume, Duration lost) {
  for (int i = 0; i < 10'000; ++i) {
    const auto beside = run.checkpointer.figures().beside;
    if (beside && beside->lost == lost) return;
    timed_step(run, volume, 100ms);
    std::this_thread::sleep_for(100us);
  }
  FAIL() << "lost " << run.checkpointer.figures().beside.value_or(StepsBeside{}).lost.count() << " ns";
}

TEST(Figures, StepsBesideWritesAreComparedWithTheOthers) {
  Volume volume;
  Attempt run(volume.options());
  run.source.on_copy = [&] { volume.clock.advance(5ms); };  // waited, and counted as that alone
  SlowDisk disk(volume);
  for (int i = 0; i < 19; ++i) timed_step(run, volume, 100ms);
  constexpr int kSaves = 8;
  for (int save = 0; save < kSaves; ++save) {
    train_beside_write(run, volume, disk, 30ms);
    for (int i = 0; i < 40; ++i) {
      timed_step(run, volume, 100ms);
      std::this_thread::sleep_for(100us);
    }
  }
  train_until_windows_closed(run, volume, kSaves * 4 * 30ms);
  EXPECT_EQ(run.checkpointer.figures().blocked, kSaves * 5ms);
  EXPECT_EQ(run.checkpointer.figures().lost(), kSaves * 4 * 30ms + kSaves * 5ms);
}

TEST(Figures, AnEvaluationIsNoSlowStep) {
  Volume volume;
  Attempt run(volume.options());
  SlowDisk disk(volume);
  for (int i = 0; i < 19; ++i) timed_step(run, volume, 100ms);
  for (int save = 0; save < 8; ++save) {
    train_beside_write(run, volume, disk, 0ms);
    for (int i = 0; i < 20; ++i) {
      timed_step(run, volume, 100ms);
      std::this_thread::sleep_for(100us);
    }
    const Checkpointer::EvaluationScope scope(run.checkpointer);
    volume.clock.advance(10s);
  }
  train_until_windows_closed(run, volume, 0ms);
}

// Window by window, without a writer's thread.
TEST(Figures, AWindowIsComparedWithTheStepsBeforeIt) {
  internal::StepTimes times;
  const auto steps = [&](int count, bool beside, Duration each) {
    std::optional<Duration> longer;
    for (int i = 0; i < count; ++i) {
      if (const auto told = times.step(each, beside)) longer = told;
    }
    return longer;
  };
  steps(5, false, 10s);  // warming up: left out
  steps(4, false, 100ms);
  steps(3, true, 150ms);
  EXPECT_EQ(steps(5, false, 100ms), std::nullopt) << "four are too few to compare with";
  steps(2, true, 130ms);
  EXPECT_EQ(steps(2, false, 1s), 2 * 30ms);
  steps(3, true, 90ms);
  EXPECT_EQ(steps(10, false, 200ms), -3 * 10ms) << "two are too few: the newest five were before";
  steps(1, true, 210ms);
  times.leave_out();
  steps(1, true, 1h);
  EXPECT_EQ(steps(1, false, 200ms), 10ms);
}

TEST(Figures, ThreeWindowsTellAndTheirSpreadIsSaid) {
  FakeClock clock;
  internal::SaveBook book(clock, nullptr);
  book.open(0, clock.now());
  book.window(90ms);
  book.window(110ms);
  EXPECT_EQ(book.figures().beside, std::nullopt);
  book.window(100ms);
  const auto beside = book.figures().beside;
  ASSERT_TRUE(beside);
  EXPECT_EQ(beside->windows, 3);
  EXPECT_NEAR(std::chrono::duration<double>(beside->lost).count(), 0.3, 1e-9);
  // Twice the root of three times the variance of 10 ms.
  EXPECT_NEAR(std::chrono::duration<double>(beside->uncertainty).count(), 2 * std::sqrt(3) * 0.01, 1e-6);
}

TEST(Figures, WritesBesideEveryStepTellNothing) {
  Volume volume;
  Attempt run(volume.options({SaveEvery::steps(1)}));
  for (int i = 0; i < 50; ++i) {
    timed_step(run, volume, 100ms);
    if (run.decision.saved) run.decision.save.wait();
  }
  EXPECT_EQ(run.checkpointer.figures().beside, std::nullopt);
  EXPECT_THAT(to_text(run.checkpointer.figures()), HasSubstr("too few steps to tell"));
}

TEST(Figures, AreInTheLedgerAndTheRunStateAndSaidAtTheEnd) {
  Volume volume;
  CapturedLog log;
  {
    Attempt run(volume.options());
    timed_step(run, volume, 61s);
    run.source.on_copy = [&] { volume.clock.advance(10ms); };
    ASSERT_EQ(run.checkpointer.save().wait(), SaveStatus::durable);
    timed_step(run, volume, 1s);
    EXPECT_EQ(run.checkpointer.finish(), 0);
    EXPECT_EQ(run.checkpointer.figures().ending, 10ms);
    EXPECT_EQ(run.checkpointer.figures().blocked, 10ms) << "the end is not training";
  }
  EXPECT_THAT(log.text(), HasSubstr("2 saves, "));
  const std::string ledger = volume.disk.get_text("/vol/run/ledger-a0001.jsonl");
  EXPECT_THAT(ledger, HasSubstr(R"({"event":"commit","step":1,"ms":)"));
  EXPECT_THAT(ledger, HasSubstr(R"("blocked_ms":10.000,"staging_ms":10.000,"queued_ms":0.000,)"));
  EXPECT_THAT(ledger, HasSubstr(R"("risk_steps":1,"risk_ms":61010.000})"));
  const auto state = read_run_state(*volume.disk.open_directory(kRun, false));
  ASSERT_TRUE(state);
  EXPECT_EQ(state->phase, RunPhase::complete);
  EXPECT_EQ(state->saves, 2);
  EXPECT_GT(state->saved_bytes, 0U);
  EXPECT_EQ(state->waited_ms, 10);
  EXPECT_EQ(state->most_risk_ms, 61010);
  EXPECT_GE(state->elapsed_ms, 62010);
}

TEST(Figures, TheTextNamesSizeTimeWaitAndRisk) {
  SaveFigures save;
  save.bytes = 188'000'000;
  save.blocked = 21ms;
  save.write = 150ms;
  save.commit = 50ms;
  save.risk_steps = 120;
  save.risk_time = 61s;
  EXPECT_EQ(to_text(save),
            "188 MB in 200 ms (940 MB/s), training waited 21 ms, 1m 01s of work (120 steps) was at risk");
  RunFigures run;
  run.durable = 12;
  run.bytes = 2'260'000'000;
  run.elapsed = 1h;
  run.blocked = 400ms;
  run.most_risk_time = 61s;
  EXPECT_EQ(
      to_text(run),
      "12 saves, 2.26 GB; training waited 400 ms in all (0.011 %), too few steps to tell what the writes "
      "beside them cost; at most 1m 01s of work was at risk");
  run.failed = 1;
  run.beside = StepsBeside{.windows = 12, .lost = 4s, .uncertainty = 1s};
  EXPECT_THAT(to_text(run), HasSubstr("1 failed; "));
  EXPECT_THAT(to_text(run), HasSubstr("steps beside a write lost 4.0 s (0.111 %, give or take 1.0 s)"));
  run.beside->lost = -1s;
  EXPECT_THAT(to_text(run), HasSubstr("lost nothing measurable (less than 1.0 s)"));
}

}}  // namespace holdfast::test
