// What a rehearsal calls lost.
#include "holdfast/cli/trial/rehearsal_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

RehearsedLife good() {
  RehearsedLife life;
  life.attempt = 3;
  life.began_at = 100;
  life.notice = 120s;
  life.given = true;
  life.seen = 2s;
  life.seen_by = "ec2";
  life.asked = true;
  life.commits = {{3s, 120}, {110s, 900}};
  life.durable_step = 900;
  life.furthest_step = 900;
  life.waited = true;
  life.ending = {.signal = SIGKILL};
  life.resumed_at = 900;
  return life;
}

TEST(RehearsalReport, AGoodLifeHasNoFaults) {
  EXPECT_THAT(faults_of(good()), IsEmpty());
  std::ostringstream out;
  print_life(out, 1, good());
  EXPECT_EQ(out.str(),
            "life 1: attempt 3, from step 100\n"
            "  notice    2m 00s ahead; seen after 2.0 s (ec2), 1m 58s before the end\n"
            "  commits   step 120 after 3.0 s, step 900 after 1m 50s\n"
            "  ended     killed by SIGKILL, at the deadline\n"
            "  unused    10s of the grace, after the last commit\n"
            "  resumed   at step 900, 0 steps lost; nothing had to be computed again\n");
}

TEST(RehearsalReport, EveryLossIsAFault) {
  RehearsedLife life = good();
  life.resumed_at = 880;
  EXPECT_THAT(faults_of(life), ElementsAre("step 900 was acknowledged, and the next life began at 880",
                                           "20 steps lost: trained up to 900, resumed at 880"));
  life = good();
  life.furthest_step = 901;
  EXPECT_THAT(faults_of(life), ElementsAre("1 step lost: trained up to 901, resumed at 900"));
  life = good();
  life.commits.clear();
  life.durable_step = 50;
  life.resumed_at = 900;
  EXPECT_THAT(faults_of(life), ElementsAre("nothing was committed between the notice and the end"));
  life = good();
  life.resumed_at.reset();
  EXPECT_THAT(faults_of(life), ElementsAre("the next life did not begin to train"));
  life = good();
  life.computed_again = 5;
  EXPECT_THAT(faults_of(life), IsEmpty());
  life.different = 2;
  EXPECT_THAT(faults_of(life), ElementsAre("of 5 steps computed again, 2 differ"));
  life = good();
  life.durable_step = -1;
  EXPECT_THAT(faults_of(life), ElementsAre("nothing was ever committed"));
}

TEST(RehearsalReport, ANoticeMustHaveBeenSeen) {
  RehearsedLife life = good();
  life.seen.reset();
  EXPECT_THAT(faults_of(life), ElementsAre("the notice was not seen"));
  life.asked = false;
  EXPECT_THAT(faults_of(life), ElementsAre("the notice was not seen: no process asked the metadata server"));
  // One that leaves with 75 has seen it, even where its ledger does not tell.
  life.left = 10s;
  life.ending = {.exit_code = 75};
  EXPECT_THAT(faults_of(life), IsEmpty());
  life.ending = {.exit_code = 1};
  EXPECT_THAT(faults_of(life), ElementsAre(HasSubstr("not seen"), "it ended by itself: exit 1"));
}

TEST(RehearsalReport, WhoeverDoesNotLeaveIsNamed) {
  RehearsedLife life = good();
  life.had_to_be_killed = true;
  EXPECT_THAT(faults_of(life), ElementsAre("it did not leave after SIGTERM"));
}

TEST(RehearsalReport, WhatIsKilledInTheMiddleOfTrainingProvesNothing) {
  RehearsedLife life = good();
  life.waited = false;
  EXPECT_THAT(faults_of(life), ElementsAre(HasSubstr("it trained until it was killed")));
  life.ending = {.exit_code = 75};  // at the deadline's SIGTERM
  EXPECT_THAT(faults_of(life), IsEmpty());
}

TEST(RehearsalReport, ALifeWithoutANoticeProvesNothing) {
  RehearsedLife life;
  life.ending = {.exit_code = 3};
  EXPECT_THAT(faults_of(life), ElementsAre("it did not begin to train (exit 3)"));
  life.attempt = 1;
  life.ending = {.exit_code = 0};
  EXPECT_THAT(faults_of(life), ElementsAre("it ended before the notice came (exit 0)"));
}

}}  // namespace holdfast::test
