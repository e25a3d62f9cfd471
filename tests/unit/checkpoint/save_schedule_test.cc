// When the next save falls due, and who may ask for one.
#include "holdfast/checkpoint/internal/save_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "engine_rig.h"
#include "support/ledger_text.h"

namespace holdfast::test { namespace {

using internal::SaveSchedule;
using testing::HasSubstr;

class SaveScheduleTest : public EngineTest {
 protected:
  SaveSchedule& schedule(SaveEvery every) {
    options.every = {every};
    end();
    make();
    return engine->schedule;
  }
  void ask(NoticeKind kind) { run->monitor.post({.source = "test", .kind = kind, .text = "now"}); }
  // A save that cost the training so much.
  void become_durable(Duration stall) {
    run->book->blocked(stall);
    const BegunSave save = engine->saves.begin(false);
    save->staged(clock.now());
    save->settle(SaveStatus::durable, "step-1.h5");
  }
  // How long after a save the next one is due.
  Duration interval(SaveSchedule& schedule) {
    const SteadyTime began = clock.now();
    schedule.saved(began, 1);
    Duration after = 1s;
    while (after < 3h && !schedule.due(began + after, 1)) after += 1s;
    return after;
  }
};

TEST_F(SaveScheduleTest, ARequestIsTakenOnce) {
  SaveSchedule& every = schedule(SaveEvery::steps(100));
  every.take_requests();
  EXPECT_FALSE(every.wanted());
  ask(NoticeKind::checkpoint_now);
  every.take_requests();
  EXPECT_TRUE(every.wanted());
  every.take_requests();
  EXPECT_TRUE(every.wanted()) << "until there is a save";
  every.want(false);
  every.take_requests();
  EXPECT_FALSE(every.wanted());
  EXPECT_EQ(every.next_due_step(clock.now()), 100) << "a request is no risk";
}

TEST_F(SaveScheduleTest, ARiskSavesNowAndHalvesTheIntervalForHalfAnHour) {
  SaveSchedule& every = schedule(10min);
  ask(NoticeKind::at_risk);
  every.take_requests();
  EXPECT_TRUE(every.wanted());
  EXPECT_EQ(interval(every), 5min);
  clock.advance(20min);
  EXPECT_EQ(interval(every), 5min);
  clock.advance(10min);
  EXPECT_EQ(interval(every), 10min);
}

TEST_F(SaveScheduleTest, CountsFromTheStepThatWasLoaded) {
  SaveSchedule& every = schedule(SaveEvery::steps(10));
  run->started.resumed.step = 7;
  every.begin();
  every.learn_lives();
  EXPECT_EQ(every.next_due_step(clock.now()), 17);
  EXPECT_FALSE(every.due(clock.now(), 16));
  EXPECT_TRUE(every.due(clock.now(), 17));
}

TEST_F(SaveScheduleTest, ChoosesTheIntervalOnceForEachDurableSave) {
  SaveSchedule& every = schedule(SaveEvery::automatic());
  const Duration before = interval(every);
  EXPECT_FALSE(every.choose_interval()) << "nothing is durable";
  become_durable(1s);
  EXPECT_TRUE(every.choose_interval());
  EXPECT_FALSE(every.choose_interval()) << "nothing new";
  const Duration one_second = interval(every);
  EXPECT_GE(one_second, 200s) << "half a percent of the time";
  EXPECT_NE(one_second, before);
  become_durable(3s);
  EXPECT_TRUE(every.choose_interval());
  EXPECT_EQ(interval(every), 2 * one_second) << "two seconds a save in the mean";
}

TEST_F(SaveScheduleTest, AFixedIntervalIsNotChosen) {
  SaveSchedule& every = schedule(10min);
  become_durable(1h);
  EXPECT_FALSE(every.choose_interval());
  EXPECT_EQ(interval(every), 10min);
}

TEST_F(SaveScheduleTest, MachinesThatLivedShortlyMakeTheIntervalShorter) {
  const auto chosen = [&] {
    SaveSchedule& every = schedule(SaveEvery::automatic());
    every.begin();
    every.learn_lives();
    become_durable(100ms);
    EXPECT_TRUE(every.choose_interval());
    return interval(every);
  };
  const Duration alone = chosen();
  for (int life = 1; life <= 9; ++life) {
    volume.disk.put(
        volume.path(ledger_name(life)),
        LedgerText(life, 0, 0, 1e9 + life * 1e4, 1, "boot-" + std::to_string(life)).progress(120, 10).text());
  }
  EXPECT_LT(chosen(), alone);
}

TEST_F(SaveScheduleTest, LedgersThatCannotBeReadStopNothing) {
  volume.disk.put(volume.path(ledger_name(1)), "x");
  SaveSchedule& every = schedule(SaveEvery::automatic());
  volume.faults.fail(Op::open_directory, 1, EIO);
  every.begin();
  every.learn_lives();
  EXPECT_THAT(log.text(), HasSubstr("the save interval is chosen without earlier attempts"));
  EXPECT_FALSE(every.due(clock.now(), 1));
}

}}  // namespace holdfast::test
