// What is done with the time before an announced end, on a clock that steps and the disk move.
#include <cstdlib>
#include <thread>

#include "holdfast/base/text.h"
#include "noticed.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

TEST_F(Noticed, TrainsOnBetweenAnInsuranceAndTheLastCommit) {
  start_measured();
  const SteadyTime deadline = now() + 120s;
  announcer.deadline(deadline);
  EXPECT_TRUE(step().saved) << "the insurance";
  EXPECT_EQ(durable(), 11);
  const std::int64_t insured = run->source.step();
  ASSERT_TRUE(steps_until([&] { return run->decision.saved; }));
  // 120 s, less 2 s and 10 s for the insurance, less 1.5 commits, a step and 4 s.
  EXPECT_EQ(run->source.step() - insured, 44) << "then steps until the reserve";
  EXPECT_FALSE(run->decision.stop) << "the machine lives";
  EXPECT_EQ(begun, 2);
  EXPECT_EQ(durable(), run->source.step());
  EXPECT_LE(run->checkpointer.last_durable().when, deadline);
  EXPECT_GE(now(), deadline + 60s) << "it paused until then";
  EXPECT_LT(now(), deadline + 61s);
  EXPECT_FALSE(step().saved) << "and is a run as any other";
  EXPECT_EQ(run->checkpointer.finish(), 0);
  EXPECT_THAT(log.text(), HasSubstr("pausing at step 55 until the machine goes away"));
}

TEST_F(Noticed, APauseEndsWithAStop) {
  start_measured();
  announcer.deadline(now() + 120s);
  volume.clock.plan(110s, [&] { announcer.stop(now() + 25s); });
  ASSERT_TRUE(steps_until([&] { return run->decision.stop; }));
  EXPECT_EQ(run->decision.reason, "SIGTERM");
  EXPECT_EQ(run->checkpointer.finish(), 75);
  EXPECT_EQ(durable(), run->source.step());
  EXPECT_EQ(begun, 2) << "nothing more was to be saved";
}

TEST_F(Noticed, APauseEndsWithAWithdrawalAndTheNextNoticeIsHeard) {
  start_measured();
  const SteadyTime deadline = now() + 120s;
  announcer.deadline(deadline);
  volume.clock.plan(115s, [&] { announcer.withdraw(); });
  ASSERT_TRUE(steps_until([&] { return now() >= deadline - 10s; }));
  EXPECT_LT(now(), deadline) << "it did not wait for the end";
  const std::int64_t paused_at = run->source.step();
  step();
  EXPECT_EQ(run->source.step(), paused_at + 1);
  EXPECT_EQ(begun, 2);
  announcer.deadline(now() + 120s);
  EXPECT_TRUE(step().saved);
  EXPECT_EQ(begun, 3);
}

TEST_F(Noticed, LeavesAfterTheCommitWhereThatIsThePolicy) {
  options.notices.on_notice = OnNotice::exit;
  start_measured();
  announcer.deadline(now() + 120s);
  EXPECT_TRUE(step().stop);
  EXPECT_EQ(run->decision.reason, "the end is near");
  announcer.withdraw();
  EXPECT_TRUE(step().stop) << "what was told to stop stays told";
  EXPECT_EQ(run->checkpointer.finish(), 75);
  EXPECT_EQ(run->checkpointer.stop_reason(), "the end is near");
  EXPECT_EQ(durable(), 12);
}

TEST_F(Noticed, TheProgramMayDecide) {
  int asked = 0;
  options.notices.on_notice = OnNotice::callback;
  options.notices.decide = [&](const Notice& notice, Duration left) {
    ++asked;
    EXPECT_EQ(notice.text, "the end is near");
    return left > 60s ? OnNotice::train_on : OnNotice::exit;
  };
  start_measured();
  announcer.deadline(now() + 120s);
  EXPECT_FALSE(step().stop);
  EXPECT_FALSE(step().stop);
  EXPECT_EQ(asked, 1);
  announcer.withdraw();
  announcer.deadline(now() + 50s);
  EXPECT_TRUE(step().stop);
  EXPECT_EQ(asked, 2);
}

TEST_F(Noticed, ADecisionThatThrowsIsToTrainOn) {
  options.notices.on_notice = OnNotice::callback;
  options.notices.decide = [](const Notice&, Duration) -> OnNotice { throw 1; };
  start_measured();
  announcer.deadline(now() + 120s);
  EXPECT_TRUE(step().saved);
  EXPECT_FALSE(run->decision.stop);
}

TEST_F(Noticed, CallbackWithoutAFunctionIsRefused) {
  options.notices.on_notice = OnNotice::callback;
  EXPECT_THROW(start(), UsageError);
}

TEST_F(Noticed, OnASlowVolumeTheOlderCheckpointStays) {
  commit = 200s;
  start_measured();
  step();
  const auto before = volume.checkpoints();
  announcer.deadline(now() + 120s);
  for (int i = 0; i < 30; ++i) step();
  EXPECT_EQ(run->source.step(), 41) << "and where nothing can be saved, nothing is lost by a step";
  EXPECT_EQ(begun, 0) << "nothing is begun that cannot end";
  EXPECT_EQ(volume.checkpoints(), before);
  EXPECT_EQ(durable(), 10);
  EXPECT_THAT(log.text(), HasSubstr("no time for a save of step 12, which takes about 3m 20s: 1m 58s left; "
                                    "step 10 is the newest that is durable"));
}

TEST_F(Noticed, ANoticeWithoutATimeIsOfAlmostTwoMinutes) {
  options.notices.on_notice = OnNotice::wait;
  start_measured();
  const SteadyTime seen = now();
  announcer.tell({.kind = NoticeKind::deadline, .text = "soon"});
  step();
  EXPECT_GE(now(), seen + 170s);
  EXPECT_LT(now(), seen + 171s);
}

TEST_F(Noticed, AMachineThatSleepsGetsItsCommitAtOnceAndGoesOn) {
  options.notices.on_notice = OnNotice::wait;
  start_measured();
  announcer.deadline(now() + 120s, true);
  EXPECT_TRUE(step().saved);
  EXPECT_FALSE(step().saved);
  volume.clock.sleep_machine(8h);
  EXPECT_FALSE(step().saved);
  EXPECT_EQ(begun, 1);
  EXPECT_THAT(log.text(), HasSubstr("the machine has slept and is awake again"));
}

// Such as a first synchronisation with the network's time.
TEST_F(Noticed, AWallClockThatIsSetIsNoSleep) {
  options.notices.on_notice = OnNotice::wait;
  start_measured();
  announcer.deadline(now() + 120s, true);
  EXPECT_TRUE(step().saved);
  volume.clock.shift_wall(8h);
  step();
  EXPECT_THAT(log.text(), Not(HasSubstr("has slept")));
}

TEST_F(Noticed, AMachineAtRiskSavesSoonAndOften) {
  options.every = {SaveEvery::steps(10)};
  start_measured();
  announcer.risk();
  EXPECT_TRUE(step().saved);
  EXPECT_FALSE(run->decision.stop);
  const auto steps = [&] {
    const std::int64_t before = run->source.step();
    EXPECT_TRUE(steps_until([&] { return run->decision.saved; }));
    return run->source.step() - before;
  };
  EXPECT_EQ(steps(), 5) << "half of ten";
  volume.clock.advance(31min);
  steps();
  EXPECT_EQ(steps(), 10) << "as before, half an hour later";
}

TEST_F(Noticed, AtRiskRunsTheCommandOfTheUser) {
  TemporaryFolder folder;
  const auto sign = folder.path() / "sign";
  options.notices.on_risk = "cat >" + sign.native() + " && exit 3";
  start_measured();
  EXPECT_FALSE(std::filesystem::exists(sign));
  announcer.risk();
  EXPECT_TRUE(soon([&] { return std::filesystem::exists(sign); }));
}

TEST_F(Noticed, TheCommandForAMachineAtRiskLearnsWhatIsAtRisk) {
  TemporaryFolder folder;
  const auto told = folder.path() / "told";
  options.notices.on_risk =
      "env | grep ^HOLDFAST_ >" + told.native() + ".new; mv " + told.native() + ".new " + told.native();
  setenv("HOLDFAST_SUPERVISOR", "of this life", 1);
  start_measured();
  announcer.deadline(now() + 600s);
  announcer.risk();
  EXPECT_TRUE(soon([&] { return std::filesystem::exists(told); }));
  unsetenv("HOLDFAST_SUPERVISOR");
  const std::vector<std::string> lines = lines_of(read_text(told));
  const std::string deadline = format_utc(volume.clock.wall_now() + 600s);
  for (const std::string& line :
       {std::string("HOLDFAST_HOOK=on-risk"), "HOLDFAST_RUN_DIRECTORY=" + options.directory.string(),
        std::string("HOLDFAST_STEP=10"), std::string("HOLDFAST_EXIT_CODE="),
        std::string("HOLDFAST_REASON=rebalance"), "HOLDFAST_DEADLINE=" + deadline}) {
    EXPECT_THAT(lines, testing::Contains(line));
  }
  EXPECT_THAT(lines, testing::Not(testing::Contains(HasSubstr("HOLDFAST_SUPERVISOR"))))
      << "what it starts is not this life of the command";
}

TEST_F(Noticed, TheWriteLimitComesBackWithAWithdrawal) {
  commit = {};
  options.writing.write_limit = 0.001;
  start();
  const auto took = [&] {
    run->decision.save.wait();
    return run->decision.save.figures().write;
  };
  run->checkpointer.request_save();
  step();
  const Duration limited = took();
  EXPECT_GT(limited, 5s);
  announcer.deadline(now() + 600s);
  step();
  EXPECT_LT(took(), limited / 2);
  announcer.withdraw();
  step();
  run->checkpointer.request_save();
  step();
  EXPECT_GE(took(), limited);
}

// From the notice to the durable commit: a step, a write in flight, and 1.5 commits at most.
TEST_F(Noticed, IsSafeAsSoonAsTheDiskAllows) {
  options.every = {SaveEvery::steps(7)};
  start_measured();
  for (int offset = 0; offset < 14; ++offset) {
    for (int i = 0; i < offset; ++i) step();
    const SteadyTime seen = now();
    const std::int64_t at = run->source.step();
    announcer.deadline(seen + 300s);
    ASSERT_TRUE(steps_until([&] { return durable() > at; }));
    EXPECT_LE(run->checkpointer.last_durable().when - seen, 2s + 10s + 15s) << offset;
    announcer.withdraw();
  }
}

TEST_F(Noticed, SavesTheFirstBoundaryBehindAWriteInFlight) {
  start();
  SlowDisk disk(volume);
  run->step();
  const SaveHandle older = run->checkpointer.save();
  disk.await(1);
  announcer.deadline(now() + 120s);
  EXPECT_FALSE(run->step().saved) << "the only image is being written; the training does not wait";
  disk.finish(2);
  EXPECT_EQ(older.wait(), SaveStatus::durable);
  EXPECT_TRUE(run->step().saved);
  EXPECT_EQ(run->decision.save.wait(), SaveStatus::durable);
}

TEST_F(Noticed, ADeadlineTakesTheImageOfASaveThatWaits) {
  options.writing.second_image = true;
  start();
  SlowDisk disk(volume);
  run->step();
  run->checkpointer.save();
  disk.await(1);
  run->step();
  const SaveHandle waiting = run->checkpointer.save();
  run->step();
  std::thread later([&] { announcer.deadline(now() + 120s); });
  const SaveHandle third = run->checkpointer.save();  // returns although the disk finishes nothing
  later.join();
  EXPECT_EQ(waiting.status(), SaveStatus::overtaken);
  EXPECT_EQ(third.status(), SaveStatus::staged);
}

TEST_F(Noticed, AnEvaluationThatTicksNeverIsCommittedFromItsBoundary) {
  start_measured();
  step();
  const std::string boundary = run->state();
  {
    const Checkpointer::EvaluationScope scope(run->checkpointer);
    run->source.evaluate();
    announcer.deadline(now() + 120s);
    ASSERT_TRUE(soon([&] { return durable() == 11; }));
    run->source.evaluate();
  }
  EXPECT_EQ(begun, 1);
  Attempt next(volume.options());
  EXPECT_EQ(next.resumed.step, 11);
  EXPECT_TRUE(next.resumed.evaluation_due);
  EXPECT_EQ(next.state(), boundary);
}

TEST_F(Noticed, ANoticeBeforeAnEvaluationIsHeardInsideToo) {
  start_measured();
  step();
  announcer.deadline(now() + 120s);
  const Checkpointer::EvaluationScope scope(run->checkpointer);
  ASSERT_TRUE(soon([&] { return durable() == 11; }));
  EXPECT_FALSE(run->checkpointer.tick());
  EXPECT_EQ(begun, 1) << "once";
}

TEST_F(Noticed, ANoticeBeforeTheStartIsPursuedFromTheFirstStep) {
  MemorySource source;
  Checkpointer checkpointer(source, options);
  announcer.deadline(now() + 120s);
  EXPECT_FALSE(checkpointer.tick());
  checkpointer.resume();
  const Decision decision = checkpointer.after_step(source.train());
  EXPECT_TRUE(decision.saved);
  EXPECT_EQ(decision.save.wait(), SaveStatus::durable);
  EXPECT_EQ(checkpointer.finish(), 0);
  EXPECT_EQ(checkpointer.stop_reason(), "") << "it came to its end by itself";
}

TEST_F(Noticed, AStopWhileTheVolumeIsWaitedForBeginsNothing) {
  options.mount = "/other";
  options.directory = "/other/run";
  MemorySource source;
  Checkpointer checkpointer(source, options);
  volume.clock.plan(30s, [&] { announcer.stop(now() + 25s); });
  try {
    checkpointer.resume();
    FAIL() << "resumed";
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.exit_code()), 75);
  }
}

TEST_F(Noticed, ADeadlineWhileTheVolumeIsWaitedForDoesNotEndTheWait) {
  options.mount = "/other";
  options.directory = "/other/run";
  MemorySource source;
  Checkpointer checkpointer(source, options);
  volume.clock.plan(30s, [&] { announcer.deadline(now() + 120s); });
  volume.clock.plan(60s, [&] { volume.disk.mount("/other"); });
  EXPECT_TRUE(checkpointer.resume().fresh);
}

// Steps of 2 s, and an interval of 5 min.
TEST_F(Noticed, TheFirstSaveComesEarlySoThatANoticeFindsItMeasured) {
  options.every = {5min};
  start();
  const SteadyTime began = now();
  ASSERT_TRUE(steps_until([&] { return durable() >= 0; }));
  EXPECT_LE(now() - began, 30s + commit);
  EXPECT_EQ(begun, 1);
  step();
  announcer.stop(now() + 5s);
  step();
  EXPECT_EQ(run->checkpointer.finish(), 75);
  EXPECT_EQ(begun, 1) << "a save takes 10 s, as is known by now";
  EXPECT_THAT(log.text(), HasSubstr("no time for a save of step"));
}

TEST_F(Noticed, AnythingThrownByAStateIsAFailedSave) {
  start_measured();
  run->source.on_copy = [] { throw 42; };
  run->checkpointer.request_save();
  step();
  EXPECT_EQ(run->decision.save.status(), SaveStatus::failed);
  EXPECT_THAT(run->decision.save.error(), HasSubstr("an exception of unknown type"));
  EXPECT_EQ(run->checkpointer.save().status(), SaveStatus::failed);
  { const Checkpointer::EvaluationScope scope(run->checkpointer); }
  EXPECT_EQ(run->checkpointer.finish(), 74);
}

}}  // namespace holdfast::test
