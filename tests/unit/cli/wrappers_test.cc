// What the wrappers decide by: when a trainer is started again, and which ends its ledger announces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "holdfast/cli/run/announced_ends.h"
#include "holdfast/cli/supervise/restart_policy.h"
#include "holdfast/cli/trial/rehearsal_report.h"
#include "support/ledger_text.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

LifeFacts interrupted(bool progress = false) { return {.ending = {.exit_code = 75}, .progress = progress}; }

TEST(RestartPolicy, DelaysDoubleUpToAMinuteAndProgressResetsThem) {
  RestartPolicy policy({.max_restarts = 100});
  for (const Duration delay : {1s, 2s, 4s, 8s, 16s, 32s, 60s, 60s}) {
    const RestartDecision decision = policy.after(interrupted());
    EXPECT_TRUE(decision.restart);
    EXPECT_EQ(decision.delay, delay);
  }
  EXPECT_EQ(policy.after(interrupted(true)).delay, 1s);
  EXPECT_EQ(policy.after(interrupted()).delay, 2s);
}

TEST(RestartPolicy, WhoeverWasAskedToStopStaysDown) {
  RestartPolicy policy;
  LifeFacts life = interrupted(true);
  life.asked_to_stop = true;
  EXPECT_FALSE(policy.after(life).restart);
  life.ending = {.signal = SIGSEGV};
  EXPECT_FALSE(policy.after(life).restart);
}

TEST(RestartPolicy, AVolumeIsTriedForAnHour) {
  RestartPolicy policy({.max_restarts = 2});
  LifeFacts life{.ending = {.exit_code = 74}};
  for (const Duration delay : {1s, 2s, 4s, 8s, 16s, 32s, 60s, 60s}) {
    const RestartDecision decision = policy.after(life);
    EXPECT_TRUE(decision.restart);
    EXPECT_EQ(decision.delay, delay);
    life.ended += delay;
  }
  const SteadyTime first{};
  life.ended = first + 59min;
  EXPECT_TRUE(policy.after(life).restart);
  life.ended = first + 1h;
  const RestartDecision end = policy.after(life);
  EXPECT_FALSE(end.restart);
  EXPECT_TRUE(end.gave_up);
  EXPECT_THAT(end.text, HasSubstr("check the volume"));
}

TEST(RestartPolicy, TheHourBeginsAgainAfterAnotherEnd) {
  for (const bool progress : {false, true}) {
    RestartPolicy policy;
    LifeFacts life{.ending = {.exit_code = 74}};
    EXPECT_TRUE(policy.after(life).restart);
    life.ended += 2h;
    life.progress = progress;
    if (!progress) {
      EXPECT_TRUE(policy.after(interrupted()).restart);
    }
    EXPECT_TRUE(policy.after(life).restart) << progress;
  }
}

TEST(RestartPolicy, AStepThatStandsStillTwiceInARowEndsIt) {
  RestartPolicy policy;
  LifeFacts stalled = interrupted();
  stalled.stood_still = true;
  EXPECT_TRUE(policy.after(stalled).restart);
  EXPECT_TRUE(policy.after(interrupted()).restart) << "not in a row";
  EXPECT_TRUE(policy.after(stalled).restart);
  stalled.progress = true;
  EXPECT_TRUE(policy.after(stalled).restart) << "it made progress first";
  stalled.progress = false;
  const RestartDecision end = policy.after(stalled);
  EXPECT_FALSE(end.restart);
  EXPECT_TRUE(end.gave_up);
  EXPECT_EQ(end.code, 70);
}

TEST(RestartPolicy, GivingUpIsNeitherCompletionNorAStop) {
  for (const int code : {64, 76, 78, 126, 130}) {
    RestartPolicy policy;
    const RestartDecision end = policy.after({.ending = {.exit_code = code}});
    EXPECT_TRUE(end.gave_up) << code;
    EXPECT_EQ(end.code, code);
  }
  RestartPolicy policy({.max_restarts = 0});
  EXPECT_TRUE(policy.after(interrupted()).gave_up);
  EXPECT_FALSE(policy.after({.ending = {.exit_code = 0}}).gave_up);
  LifeFacts asked = interrupted();
  asked.asked_to_stop = true;
  EXPECT_FALSE(policy.after(asked).gave_up);
}

TEST(RestartPolicy, WaitsForAMinuteAfterADeadline) {
  RestartPolicy policy;
  LifeFacts life = interrupted(true);
  life.deadline_left = 100s;
  EXPECT_EQ(policy.after(life).delay, 160s);
  EXPECT_THAT(policy.after(life).text, HasSubstr("goes away in 1m 40s"));
  life.deadline_left = -59s;
  EXPECT_EQ(policy.after(life).delay, 1s);
  life.deadline_left = -50s;
  EXPECT_EQ(policy.after(life).delay, 10s);
  life.deadline_left = -1h;
  EXPECT_EQ(policy.after(life).delay, 1s);
  life.deadline_left = 9min;
  EXPECT_EQ(policy.after(life).delay, 10min);
  life.deadline_left = 11min;
  EXPECT_EQ(policy.after(life).delay, 1s) << "there is time to train";
}

// It would take the run back, however far away the end is.
TEST(RestartPolicy, LeavesARunThatWasHandedOverUntilTheEndHasPassed) {
  RestartPolicy policy;
  LifeFacts life = interrupted(true);
  life.handed_over = true;
  life.deadline_left = 11min;
  EXPECT_EQ(policy.after(life).delay, 12min);
  EXPECT_THAT(policy.after(life).text, HasSubstr("a standby goes on with the run"));
  life.deadline_left = -1h;
  EXPECT_EQ(policy.after(life).delay, 1min);
}

LedgerText ledger() { return LedgerText(1, 40, 0, 1000, 1, "b"); }

std::string deadline(const char* source, int left_ms) {
  return R"("source":")" + std::string(source) + R"(","kind":"deadline","left_ms":)" +
         std::to_string(left_ms);
}

TEST(AnnouncedEnds, TheEarliestDeadlineCountsUntilItsSourceTakesItBack) {
  LedgerText text = ledger();
  text.line("notice", 1, deadline("ec2", 90'000)).line("notice", 2, deadline("file", 50'000));
  EXPECT_EQ(machine_ends(lives_of({text.text()}).at(0)), WallTime(1000s + 51s));
  text.line("notice", 3, R"("source":"file","kind":"withdrawn")");
  EXPECT_EQ(machine_ends(lives_of({text.text()}).at(0)), WallTime(1000s + 90s));
}

TEST(AnnouncedEnds, ANoticeBeforeTheStartCounts) {
  const std::string line =
      R"({"event":"notice","t":5000,"up_ms":10,"source":"ec2","kind":"deadline","left_ms":1000})";
  EXPECT_EQ(machine_ends(lives_of({line + "\n"}).at(0)), WallTime(6s));
}

TEST(AnnouncedEnds, TheRunsOwnTimeIsNotTheMachines) {
  LedgerText text = ledger();
  text.line("notice", 1, deadline("deadline", 60'000));
  const LedgerLife life = lives_of({text.text()}).at(0);
  EXPECT_FALSE(machine_ends(life));
  EXPECT_TRUE(own_time_is_over(life, true, WallTime(1050s)));
  EXPECT_FALSE(own_time_is_over(life, false, WallTime(1050s))) << "it did not leave";
  EXPECT_FALSE(own_time_is_over(life, true, WallTime(1130s))) << "the job got more time";
}

TEST(Recomputed, ComparesWhatTwoAttemptsComputed) {
  const LossesByStep older = {{5, 1.0}, {6, 2.0}, {7, 3.0}};
  EXPECT_EQ(compare_losses(older, {{6, 2.0}, {7, 3.0}, {8, 4.0}}).steps, 2);
  EXPECT_EQ(compare_losses(older, {{6, 2.0}, {7, 3.0}}).different, 0);
  EXPECT_EQ(compare_losses(older, {{6, std::nextafter(2.0, 3.0)}}).different, 1);
  EXPECT_EQ(compare_losses(older, {}).steps, 0);
}

}}  // namespace holdfast::test
