// The end of a run that hears of its machine's end, and what is committed on the way there.
#include <thread>

#include "asked_clock.h"
#include "holdfast/store/run_state.h"

namespace holdfast::test { namespace {

using testing::Not;

RunState run_state(Volume& volume) {
  return read_run_state(*volume.disk.open_directory(kRun, false)).value();
}

// What a program did between the step boundary and its copy is no part of what a commit costs.
class SavedLate : public Noticed, public testing::WithParamInterface<std::string> {};

TEST_P(SavedLate, LeavesTimeForASaveAtAStop) {
  options.keep = KeepLast{2} | KeepBest{"accuracy", 1, Better::higher};
  start_measured();
  step();
  const std::string way = GetParam();
  if (way == "save") {
    volume.clock.advance(3min);
    run->checkpointer.save();
  } else {
    const Checkpointer::EvaluationScope scope(run->checkpointer);
    volume.clock.advance(3min);
    if (way == "metric") run->checkpointer.metric("accuracy", 0.5);
    if (way == "tick") {
      run->checkpointer.request_save();
      EXPECT_FALSE(run->checkpointer.tick());
    }
    if (way == "notice") announcer.deadline(now() + 600s);
    if (way != "metric") {
      ASSERT_TRUE(soon([&] { return durable() == 11; }));
    }
  }
  ASSERT_TRUE(soon([&] { return durable() == 11; }));
  announcer.withdraw();
  announcer.stop(now() + 25s);
  EXPECT_TRUE(step().stop);
  EXPECT_EQ(run->checkpointer.finish(), 75);
  EXPECT_EQ(durable(), 12);
}

INSTANTIATE_TEST_SUITE_P(Ways, SavedLate, testing::Values("save", "metric", "tick", "notice"),
                         [](const auto& info) { return info.param; });

TEST_F(Noticed, AStopWithoutTimeForASaveDoesNotBeginOne) {
  commit = 60s;
  start_measured();
  step();
  announcer.stop(now() + 25s);
  EXPECT_TRUE(step().stop);
  EXPECT_EQ(run->checkpointer.finish(), 75) << "nothing failed, and the next attempt goes on from step 10";
  EXPECT_EQ(begun, 0);
  EXPECT_EQ(run->checkpointer.stop_reason(),
            "SIGTERM; no time was left to save step 12, step 10 is the newest that is durable");
  EXPECT_EQ(run_state(volume).phase, RunPhase::interrupted);
  EXPECT_EQ(run_state(volume).exit_code, 75);
  EXPECT_EQ(run_state(volume).durable_step, 10);
  EXPECT_THAT(log.text(),
              HasSubstr("no time for a save of step 12, which takes about 1m 00s: 23s left; step 10 "
                        "is the newest that is durable"));
}

TEST_F(Noticed, ThatThereWasNoTimeIsSaidForEveryNotice) {
  commit = 200s;
  start_measured();
  announcer.deadline(now() + 120s);
  step();
  announcer.withdraw();
  step();
  announcer.stop(now() + 25s);
  step();
  EXPECT_EQ(run->checkpointer.finish(), 75);
  const std::string text = log.text();
  EXPECT_THAT(text, HasSubstr("no time for a save of step 11"));
  EXPECT_THAT(text, HasSubstr("no time for a save of step 13"));
}

TEST_F(Noticed, ANoticeInFinishChangesNothingAboutACompleteRun) {
  commit = {};
  start();
  SlowDisk disk(volume);
  run->step();
  std::thread later([&] {
    disk.await(1);
    announcer.deadline(now() + 120s);
    disk.finish();
  });
  EXPECT_EQ(run->checkpointer.finish(), 0);
  later.join();
  EXPECT_EQ(durable(), 1);
}

TEST_F(Noticed, ACompleteRunWaitsForItsLastSaveThoughADeadlinePasses) {
  for (const bool hibernates : {false, true}) {
    start();
    SlowDisk disk(volume);
    run->step();
    std::thread later([&] {
      disk.await(1);
      announcer.deadline(now() + 5s, hibernates);
      volume.clock.advance(10s);
      std::this_thread::sleep_for(150ms);  // time to give up
      disk.finish();
    });
    EXPECT_EQ(run->checkpointer.finish(), 0) << hibernates;
    later.join();
    EXPECT_EQ(durable(), run->source.step());
  }
}

TEST_F(Noticed, AnEvaluationIsTriedAgainEveryTwoSeconds) {
  commit = {};
  start_measured();
  step();
  const Checkpointer::EvaluationScope scope(run->checkpointer);
  volume.faults.fail(Op::reserve, 1, ENOSPC, {.for_ever = true});
  announcer.deadline(now() + 120s);
  ASSERT_TRUE(soon([&] { return run->checkpointer.figures().failed == 1; }));
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(run->checkpointer.tick());
  EXPECT_EQ(begun, 1) << "not at every tick";
  // The two seconds count from the moment at which the driver hears of the failure, which may come later.
  const auto in_two_seconds_or_later = [&](const auto& reached) {
    volume.clock.advance(1900ms);
    return soon([&] {
      volume.clock.advance(10ms);
      return reached();
    });
  };
  ASSERT_TRUE(in_two_seconds_or_later([&] { return run->checkpointer.figures().failed == 2; }));
  EXPECT_EQ(begun, 2);
  volume.faults.clear_faults();
  EXPECT_TRUE(in_two_seconds_or_later([&] { return durable() == 11; }));
}

TEST_F(AskedNoticed, WhoeverWaitsForAnImageIsNotDeaf) {
  start();
  SlowDisk disk(volume);
  run->step();
  run->checkpointer.save();
  disk.await(1);
  run->step();
  announcer.deadline(now() + 600s);
  std::thread later([&] {
    // The watch and the training have both looked since.
    const auto all_look = [&] {
      const int before = clock.asked_by_others(training);
      EXPECT_TRUE(soon([&] { return clock.asked_by_others(training) >= before + 3; }));
      const int then = clock.asked(training);
      EXPECT_TRUE(soon([&] { return clock.asked(training) >= then + 6; }));
    };
    all_look();
    for (int i = 0; i < 4; ++i) {
      volume.clock.advance(4s);
      all_look();
    }
    disk.finish(2);
  });
  run->checkpointer.save();
  later.join();
  EXPECT_THAT(log.text(), Not(HasSubstr("deaf for")));
}

}}  // namespace holdfast::test
