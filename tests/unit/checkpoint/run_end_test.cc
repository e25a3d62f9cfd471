// How a run ends, by what became of its last save: exit code, phase and reason.
#include "holdfast/checkpoint/internal/run_end.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <tuple>

#include "engine_rig.h"
#include "holdfast/store/run_state.h"
#include "slow_disk.h"
#include "support/gate.h"

namespace holdfast::test { namespace {

using internal::RunEnd;
using testing::Contains;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

class RunEndTest : public EngineTest {
 protected:
  RunEnd& run_end() { return engine->end; }
  RunState told() { return read_run_state(*volume.disk.open_directory(kRun, false)).value_or(RunState{}); }
  // What the run state says as well.
  void expect_end(int code, RunPhase phase, const testing::Matcher<std::string>& reason) {
    EXPECT_TRUE(run_end().over());
    EXPECT_EQ(run_end().code(), code);
    EXPECT_THAT(run_end().reason(), reason);
    EXPECT_EQ(told().exit_code, code);
    EXPECT_EQ(told().phase, phase);
    EXPECT_EQ(told().reason, run_end().reason());
  }
  void expect_finish(int code, RunPhase phase, const testing::Matcher<std::string>& reason) {
    run_end().finish();
    expect_end(code, phase, reason);
  }
  void stop_within(Duration left) {
    run->monitor.post(
        {.source = "test", .kind = NoticeKind::stop, .deadline = clock.now() + left, .text = "SIGTERM"});
  }
  // The run's clock goes on while `work` waits for the disk.
  template <class Work>
  void while_time_passes(const Work& work) {
    std::atomic<bool> over{false};
    std::thread time([&] {
      while (!over) {
        clock.advance(1s);
        std::this_thread::sleep_for(1ms);
      }
    });
    work();
    over = true;
    time.join();
  }
};

TEST_F(RunEndTest, ARunThatCameToItsEndIsComplete) {
  start();
  steps(3);
  expect_finish(0, RunPhase::complete, "");
  EXPECT_EQ(told().durable_step, 3);
  expect_newest(3);
}

TEST_F(RunEndTest, AStopInterruptsIt) {
  options.notices.exit_code_interrupted = 99;
  start();
  steps(3);
  stop();
  expect_finish(99, RunPhase::interrupted, "SIGTERM");
  EXPECT_TRUE(engine->limit.lifted());
  expect_newest(3);
}

TEST_F(RunEndTest, WithoutAStepItFailsUnlessItWasToldToStop) {
  start();
  expect_finish(70, RunPhase::failed, HasSubstr("without a single step"));
  end();
  start();
  stop();
  expect_finish(75, RunPhase::interrupted, "SIGTERM");
}

TEST_F(RunEndTest, ASaveThatFailedIsTriedOnceMore) {
  start();
  step();
  std::atomic<int> writes{0};
  volume.faults.set_hook([&](const Operation& operation) {
    const bool begins = operation.kind == Op::create && operation.path.find("step-") != std::string::npos;
    if (begins && writes++ == 0) throw Error("planted", ExitCode::io_failed);
  });
  expect_finish(0, RunPhase::complete, "");
  EXPECT_EQ(writes, 2);
  EXPECT_THAT(partners.calls(), Contains("last_save_again"));
  expect_newest(1);
}

TEST_F(RunEndTest, ALastStepThatThereIsNoTimeForIsLeftOut) {
  for (const bool others_say_so : {false, true}) {
    start();
    const std::int64_t before = source.step();
    step();
    save();
    step();
    run->costs.committed(60s);
    partners.no_time = others_say_so;
    others_say_so ? stop() : stop_within(30s);
    const std::string step = std::to_string(before + 2);
    const std::string durable = std::to_string(before + 1);
    expect_finish(75, RunPhase::interrupted,
                  "SIGTERM; no time was left to save step " + step + ", step " + durable +
                      " is the newest that is durable");
    end();
  }
}

// It loses nothing by trying.
TEST_F(RunEndTest, ARunThatEndsByItselfSavesInTheFaceOfADeadline) {
  start();
  step();
  run->costs.committed(60s);
  deadline(30s);
  expect_finish(0, RunPhase::complete, "");
  expect_newest(1);
}

TEST_F(RunEndTest, ANewerAttemptHasTheLastWord) {
  start();
  steps(2);
  const Attempt rival(volume.options());
  run_end().finish();
  EXPECT_EQ(run_end().code(), 76);
  EXPECT_EQ(run_end().reason(), run->writer->superseded_reason());
  EXPECT_EQ(told().attempt, 2);
  EXPECT_EQ(told().phase, RunPhase::running);
}

TEST_F(RunEndTest, WhatIsStagedIsStillWrittenWhenItBreaksOff) {
  start();
  steps(2);
  submit();
  step();
  run_end().break_off(Error("rank 1 is lost", ExitCode::interrupted));
  expect_end(75, RunPhase::interrupted, "rank 1 is lost");
  expect_newest(2);
  start();
  step();
  run_end().break_off(UsageError("unequal steps"));
  expect_end(static_cast<int>(UsageError("").exit_code()), RunPhase::failed, "unequal steps");
}

TEST_F(RunEndTest, AnotherRankSaysHowItEnded) {
  start();
  run_end().adopt_outcome(75, "SIGTERM");
  EXPECT_TRUE(run_end().over());
  EXPECT_EQ(run_end().code(), 75);
  EXPECT_EQ(run_end().reason(), "SIGTERM");
  EXPECT_EQ(told().phase, RunPhase::running) << "that process has the run state";
}

TEST_F(RunEndTest, AnEvaluationThatWasCutShortIsStillDue) {
  start();
  steps(2);
  engine->evaluation.enter();
  engine->evaluation.keep_boundary();
  source.weight(0) = 7;
  stop();
  engine->evaluation.tick(true);
  engine->evaluation.leave(false, false);
  expect_finish(75, RunPhase::interrupted, "SIGTERM");
  end();
  Attempt next(volume.options());
  EXPECT_TRUE(next.resumed.evaluation_due);
  EXPECT_EQ(next.state(), state_after(2));
}

// Told to stop or not, and one more question.
class RunEndTable : public RunEndTest, public testing::WithParamInterface<std::tuple<bool, bool>> {
 protected:
  const bool stopped = std::get<0>(GetParam());
};
INSTANTIATE_TEST_SUITE_P(, RunEndTable, testing::Combine(testing::Bool(), testing::Bool()));

TEST_P(RunEndTable, WhereMemoryIsNoStepNothingNewerIsCommitted) {
  const bool here = std::get<1>(GetParam());
  start();
  steps(2);
  save();
  step();
  here ? announce() : static_cast<void>(partners.torn = 1);
  if (stopped) stop();
  const char* why = here ? "the update of step 4 has begun" : "rank 1 is inside an update";
  expect_finish(stopped ? 75 : 70, stopped ? RunPhase::interrupted : RunPhase::failed,
                StartsWith((stopped ? std::string("SIGTERM; ") : "") + why));
  expect_newest(2);
  EXPECT_THAT(log.text(), HasSubstr("nothing newer is committed, step 2 is the newest that is durable"));
}

// A run that was told to stop goes on elsewhere, where something of it is durable.
TEST_P(RunEndTable, WithoutItsLastSaveItFailsUnlessItWasToldToStop) {
  const bool durable = std::get<1>(GetParam());
  start();
  step();
  if (durable) save();
  step();
  break_disk();
  if (stopped) stop();
  const bool interrupted = stopped && durable;
  expect_finish(interrupted ? 75 : 74, interrupted ? RunPhase::interrupted : RunPhase::failed,
                HasSubstr("the disk is broken"));
  EXPECT_EQ(told().durable_step, durable ? 1 : -1);
}

// The machine's end comes by a deadline alone, or as a stop.
TEST_P(RunEndTable, ADiskThatHangsIsLeftBehindWhenTheTimeIsUp) {
  const bool durable = std::get<1>(GetParam());
  options.notices.on_notice = OnNotice::exit;
  start();
  step();
  if (durable) save();
  step();
  SlowDisk disk(volume);
  stopped ? stop_within(30s) : deadline(30s);
  while_time_passes([&] { run_end().finish(); });
  EXPECT_TRUE(run_end().gave_up());
  EXPECT_EQ(run_end().code(), durable ? 75 : 74);
  EXPECT_THAT(run_end().reason(), EndsWith("; the last save did not end in time"));
  EXPECT_EQ(told().phase, RunPhase::running) << "the writer still has the store";
}

// The last save is durable, and the server of the volume goes away.
class DeadVolume : public RunEndTest {
 protected:
  ~DeadVolume() override { revive(); }
  // Every call on a path with `part` in it hangs.
  void die(const std::string& part) {
    volume.faults.set_hook([dead = dead_, part](const Operation& operation) {
      if (operation.path.find(part) != std::string::npos) dead->pass();
    });
  }
  void await_hang() { dead_->await_arrival(); }
  // From here on the disk answers again, so that the threads can end.
  void revive() {
    volume.faults.set_hook({});
    dead_->open();
  }
  void step_and_save() {
    start();
    step();
    save();
    ASSERT_TRUE(run->writer->wait_idle(1min));
  }
  // False: `work` hangs, although the deadline is over.
  bool ends_by_itself(const std::function<void()>& work) {
    bool by_itself = false;
    while_time_passes([&] {
      auto ended = std::async(std::launch::async, work);
      by_itself = ended.wait_for(20s) == std::future_status::ready;
      if (!by_itself) revive();
    });
    return by_itself;
  }
  // The idle writer looks for newer attempts, and gets no answer.
  void hang_in_a_look() {
    die("attempts");
    clock.advance(10s);
    await_hang();
  }
  void expect_left_behind(int code) {
    EXPECT_TRUE(run_end().over());
    EXPECT_TRUE(run_end().gave_up());
    EXPECT_EQ(run_end().code(), code);
    EXPECT_EQ(told().phase, RunPhase::running) << "the thread that hangs still has the store";
  }

 private:
  const std::shared_ptr<Gate> dead_ = std::make_shared<Gate>();
};

TEST_F(DeadVolume, HoldsNoEndWhenTheIdleWriterLooksForNewerAttempts) {
  step_and_save();
  hang_in_a_look();
  stop_within(30s);
  EXPECT_TRUE(ends_by_itself([&] { run_end().finish(); }));
  expect_left_behind(75);
  EXPECT_EQ(run_end().reason(), "SIGTERM") << "the last step is durable";
}

TEST_F(DeadVolume, HoldsNoEndWithoutALastSave) {
  step_and_save();
  step();
  run->costs.committed(60s);
  hang_in_a_look();
  stop_within(30s);
  EXPECT_TRUE(ends_by_itself([&] { run_end().finish(); }));
  expect_left_behind(75);
  EXPECT_THAT(run_end().reason(), HasSubstr("no time was left to save step 2"));
}

TEST_F(DeadVolume, HoldsNoRunThatBreaksOff) {
  step_and_save();
  hang_in_a_look();
  deadline(30s);
  EXPECT_TRUE(ends_by_itself([&] { run_end().break_off(Error("rank 1 is lost", ExitCode::interrupted)); }));
  expect_left_behind(75);
}

// The volume dies after the writer's last look: these lines are the next that go to the disk.
TEST_F(DeadVolume, HoldsNoEndAtTheLastLedgerLines) {
  step_and_save();
  die("ledger");
  run->ledger.pause(1, "the end is near");
  stop_within(30s);
  EXPECT_TRUE(ends_by_itself([&] { run_end().finish(); }));
  expect_left_behind(75);
}

TEST_F(DeadVolume, HoldsNoEndAtTheRunState) {
  step_and_save();
  die("state");
  stop_within(30s);
  EXPECT_TRUE(ends_by_itself([&] { run_end().finish(); }));
  expect_left_behind(75);
}

// A disk that is only slow: what follows a save that ended in time is still written.
TEST_F(DeadVolume, ThatComesBackSoonAfterTheDeadlineGetsTheRunState) {
  step_and_save();
  die("state");
  stop_within(30s);
  auto ended = std::async(std::launch::async, [&] { run_end().finish(); });
  await_hang();
  clock.advance(60s);
  revive();
  ended.get();
  EXPECT_FALSE(run_end().gave_up());
  expect_end(75, RunPhase::interrupted, "SIGTERM");
}

}}  // namespace holdfast::test
