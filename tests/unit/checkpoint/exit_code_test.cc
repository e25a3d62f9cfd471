// What finish() says about a run: told to stop, a run with something durable is interrupted, whatever became
// of its last save; a run that did nothing is not complete.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "announcer.h"
#include "holdfast/staging/run_record.h"
#include "rig.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;

RunState run_state(const Volume& volume) {
  auto disk = volume.disk.copy();
  return read_run_state(*disk.open_directory(kRun, false)).value();
}

void no_more_checkpoints(Volume& volume) { volume.faults.fail(Op::create, 1, ENOSPC, {.for_ever = true}); }

TEST(ExitCode, ToldToStopWithSomethingDurableIsInterruptedAlsoWhereTheLastSaveFails) {
  Volume volume;
  CapturedLog log;
  Attempt run(volume.options());
  run.train_to(2);
  ASSERT_EQ(run.checkpointer.save().wait(), SaveStatus::durable);
  no_more_checkpoints(volume);
  run.checkpointer.request_stop("SIGTERM");
  EXPECT_TRUE(run.step().stop);
  EXPECT_EQ(run.checkpointer.finish(), 75);
  EXPECT_EQ(run.checkpointer.last_durable().step, 2);
  EXPECT_THAT(run.checkpointer.stop_reason(), HasSubstr("SIGTERM"));
  EXPECT_THAT(log.text(), HasSubstr("step 2 is the newest that is durable"));
}

TEST(ExitCode, ToldToStopWhereTheLastSaveDoesNotEndInTimeIsInterrupted) {
  Volume volume;
  CapturedLog log;
  Gate gate;
  Announcer announcer;
  CheckpointerOptions options = volume.options();
  announcer.give_to(options);
  {
    Attempt run(options);
    run.train_to(2);
    ASSERT_EQ(run.checkpointer.save().wait(), SaveStatus::durable);
    volume.faults.set_hook([&](const Operation& operation) {
      if (operation.kind == Op::sync_file && operation.path.find("step-") != std::string::npos) gate.pass();
    });
    announcer.stop(volume.clock.now() + 20s);
    EXPECT_TRUE(run.step().stop);
    std::atomic<bool> ended{false};
    std::thread late([&] {  // an end that has passed before the wait begins gets some seconds more
      gate.await_arrival();
      for (; !ended; std::this_thread::sleep_for(1ms)) volume.clock.advance(21s);
    });
    EXPECT_EQ(run.checkpointer.finish(), 75);
    ended = true;
    late.join();
  }
  gate.open();
  while (volume.disk.open_handles() > 0) std::this_thread::sleep_for(1ms);
  EXPECT_THAT(log.text(), HasSubstr("step 2 is the newest that is durable"));
}

TEST(ExitCode, ARunThatEndedByItselfAndCannotSaveHasFailed) {
  Volume volume;
  CapturedLog log;
  Attempt run(volume.options());
  run.train_to(2);
  ASSERT_EQ(run.checkpointer.save().wait(), SaveStatus::durable);
  no_more_checkpoints(volume);
  run.step();
  EXPECT_EQ(run.checkpointer.finish(), 74);
}

TEST(ExitCode, ToldToStopWithNothingDurableAndAFailedSaveHasFailed) {
  Volume volume;
  CapturedLog log;
  Attempt run(volume.options());
  no_more_checkpoints(volume);
  run.step();
  run.checkpointer.request_stop("SIGTERM");
  EXPECT_EQ(run.checkpointer.finish(), 74);
}

TEST(ExitCode, ARunWithoutAStepIsNotComplete) {
  Volume volume;
  CapturedLog log;
  Attempt run(volume.options());
  EXPECT_EQ(run.checkpointer.finish(), 70);
  EXPECT_EQ(run.checkpointer.finish(), 70);
  EXPECT_THAT(run.checkpointer.stop_reason(), HasSubstr("after_step()"));
  EXPECT_EQ(run_state(volume).phase, RunPhase::failed);
  EXPECT_THAT(log.text(), HasSubstr("after_step()"));
}

TEST(ExitCode, ARunThatResumedAtItsLastStepIsComplete) {
  Volume volume;
  CapturedLog log;
  {
    Attempt run(volume.options());
    run.train_to(3);
    EXPECT_EQ(run.checkpointer.finish(), 0);
  }
  Attempt again(volume.options());
  EXPECT_EQ(again.checkpointer.finish(), 0);
}

TEST(ExitCode, ACheckpointerThatGoesWithoutFinishSaysSo) {
  Volume volume;
  const auto said = [&](const auto& life) {
    CapturedLog log;
    life();
    return log.text();
  };
  const std::string words = "without finish()";
  EXPECT_THAT(said([&] {
                Attempt run(volume.options());
                run.train_to(2);
              }),
              HasSubstr(words));
  EXPECT_THAT(said([&] {
                Attempt run(volume.options());
                run.train_to(3);
                run.checkpointer.finish();
              }),
              Not(HasSubstr(words)));
  EXPECT_THAT(said([&] {
                MemorySource source;
                const Checkpointer never_began(source, volume.options());
              }),
              Not(HasSubstr(words)));
}

}}  // namespace holdfast::test
