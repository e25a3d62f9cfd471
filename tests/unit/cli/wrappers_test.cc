// What the wrappers decide by: when a trainer is started again, and what a ledger tells of its life.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "holdfast/cli/life_story.h"
#include "holdfast/cli/restart_policy.h"

namespace holdfast::test {
namespace {

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

TEST(LifeStory, TellsWhatTheLedgerTells) {
  const LifeStory story =
      parse_life_story(R"({"event":"start","t":1000,"attempt":3,"step":40,"from_attempt":2,"boot":"b"})"
                       "\n"
                       R"({"event":"notice","t":2000,"source":"ec2","kind":"deadline","left_ms":120000})"
                       "\n"
                       R"({"event":"commit","t":2500,"step":44})"
                       "\n"
                       R"({"event":"progress","t":2600,"step":48})"
                       "\n"
                       R"({"event":"pause","t":2700,"step":47,"why":"ec2"})"
                       "\n"
                       R"({"event":"commit","t":9999,"st)");
  ASSERT_TRUE(story.start);
  EXPECT_EQ(story.start->step, 40);
  EXPECT_EQ(story.start->from_attempt, 2U);
  EXPECT_EQ(story.start->boot, "b");
  ASSERT_EQ(story.commits.size(), 1U) << "the last line is torn";
  EXPECT_EQ(story.commits[0].step, 44);
  EXPECT_EQ(story.paused_at, 47);
  EXPECT_EQ(story.furthest_step, 48);
  EXPECT_EQ(story.machine_ends(), WallTime(122s));
}

TEST(LifeStory, TheEarliestDeadlineCountsUntilItsSourceTakesItBack) {
  const std::string two = R"({"event":"notice","t":0,"source":"ec2","kind":"deadline","left_ms":90000})"
                          "\n"
                          R"({"event":"notice","t":1000,"source":"file","kind":"deadline","left_ms":50000})"
                          "\n";
  EXPECT_EQ(parse_life_story(two).machine_ends(), WallTime(51s));
  EXPECT_EQ(parse_life_story(two + R"({"event":"notice","t":2000,"source":"file","kind":"withdrawn"})"
                                   "\n")
                .machine_ends(),
            WallTime(90s));
}

TEST(LifeStory, ComparesWhatTwoAttemptsComputed) {
  const std::string older =
      "{\"event\":\"losses\",\"from\":5,\"bits\":\"3ff00000000000004000000000000000\"}\n"
      "{\"event\":\"progress\",\"step\":6}\n"
      "{\"event\":\"losses\",\"from\":7,\"bits\":\"4008000000000000\"}\n";
  const std::string same =
      "{\"event\":\"losses\",\"from\":6,\"bits\":\"40000000000000004008000000000000\"}\n";
  const std::string other =
      "{\"event\":\"losses\",\"from\":6,\"bits\":\"40000000000000014008000000000000\"}\n";
  EXPECT_EQ(compare_losses(older, same).steps, 2);
  EXPECT_EQ(compare_losses(older, same).different, 0);
  EXPECT_EQ(compare_losses(older, other).different, 1);
  EXPECT_EQ(compare_losses(older, "").steps, 0);
  EXPECT_EQ(parse_life_story(older).furthest_step, 7);
}

TEST(LifeStory, NonsenseTellsNothing) {
  for (const std::string line :
       {"", "{", "[]", "null", "7", R"({"event":7})", R"({"event":"start","step":"x","from_attempt":-1})",
        R"({"event":"commit","t":1e300,"step":1e300})", R"({"event":"commit","step":-5})",
        R"({"event":"notice","t":{},"source":[],"kind":null,"left_ms":true})",
        R"({"event":"notice","kind":"deadline","source":"ec2","left_ms":9e18,"t":-9e18})"}) {
    const LifeStory story = parse_life_story(line + "\n");
    EXPECT_TRUE(story.commits.empty()) << line;
    EXPECT_EQ(story.furthest_step, -1) << line;
  }
}

}  // namespace
}  // namespace holdfast::test
