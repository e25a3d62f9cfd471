// Ranks whose steps are short vote about once a second, and act as if they voted at each step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "holdfast/planning/vote_cadence.h"
#include "together.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

class ShortSteps : public Together {
 protected:
  ShortSteps() {
    step_time = 10ms;
    options.every = {};
  }
};

TEST_F(ShortSteps, SendNothingBetweenVotes) {
  live(3, [this](Member& one) {
    one.train_to(500);
    const int told = world->told(one.rank);
    const auto votes = world->votes(one.rank);
    EXPECT_THAT(votes, ElementsAre(1, 2, 4, 8, 16, 32, 64, 128, 228, 328, 428)) << "rank " << one.rank;
    one.train_to(527);
    EXPECT_EQ(world->votes(one.rank), votes);
    EXPECT_EQ(world->told(one.rank), told);
    one.train_to(528);
    EXPECT_EQ(world->votes(one.rank).size(), votes.size() + 1);
    one.finish();
  });
  expect_all_ended(0);
  EXPECT_THAT(volume->checkpoints(), ElementsAre(HasSubstr("step-000000000528-"))) << "a save at the end";
}

TEST_F(ShortSteps, SaveAtTheStepsThatThePolicyNames) {
  options.every = {SaveEvery::steps(20)};
  live(2, [](Member& one) {
    one.train_to(90);
    one.finish();
  });
  EXPECT_THAT(errors(), Each(std::string()));
  for (const auto& one : members) EXPECT_THAT(one->saved, ElementsAre(20, 40, 60, 80)) << one->rank;
  const auto votes = world->votes(1);
  for (const std::int64_t step : {19, 39, 59, 79}) EXPECT_THAT(votes, Contains(step));
  EXPECT_LE(votes.size(), 16U) << "a few at the start, two for each save, and the end's";
}

TEST_F(ShortSteps, SaveBySecondsWithinASecond) {
  options.every = {5s};
  live(2, [](Member& one) {
    one.train_to(1200);
    one.finish();
  });
  EXPECT_THAT(errors(), Each(std::string()));
  EXPECT_EQ(member(0).saved, member(1).saved);
  ASSERT_EQ(member(0).saved.size(), 2U);
  EXPECT_THAT(member(0).saved[0], AllOf(testing::Ge(500), testing::Le(601)));
  EXPECT_THAT(member(0).saved[1] - member(0).saved[0], AllOf(testing::Ge(500), testing::Le(601)));
}

// Wherever between two votes it comes.
TEST_F(ShortSteps, AStopOnOneRankStopsAllWithinASecondAndTwoSteps) {
  for (const std::int64_t told : {1, 2, 3, 127, 128, 129, 200, 227, 228, 299}) {
    for (const int rank : {0, 2}) {
      start_over();
      live(3, [&](Member& one) {
        one.train_to(told);
        if (one.rank == rank) one.announcer.stop(one.clock.now() + 1h);
        one.train_to(100'000);
        one.finish();
      });
      expect_all_ended(75);
      EXPECT_THAT(steps(), Each(member(0).source.step()));
      EXPECT_LE((member(0).source.step() - told) * step_time, 1s + 2 * step_time) << told << " " << rank;
      EXPECT_EQ(volume->checkpoints().size(), 1U);
    }
  }
}

TEST_F(ShortSteps, ASaveThatOneRankAsksForBeginsWithinASecond) {
  live(2, [](Member& one) {
    one.train_to(150);
    if (one.rank == 1) one.checkpointer->request_save();
    one.train_to(400);
    one.finish();
  });
  EXPECT_THAT(errors(), Each(std::string()));
  for (const auto& one : members) EXPECT_THAT(one->saved, ElementsAre(229)) << "voted on at 228";
}

TEST_F(ShortSteps, SlowerStepsVoteMoreOften) {
  live(2, [this](Member& one) {
    one.train_to(228);
    one.step_time = 500ms;
    one.train_to(428);
    const auto votes = world->votes(one.rank);
    EXPECT_EQ(votes.back() - votes[votes.size() - 2], 2);
    one.finish();
  });
  EXPECT_THAT(errors(), Each(std::string()));
}

TEST_F(ShortSteps, ARankThatLeavesItsLoopBetweenVotesIsNamed) {
  live(3, [](Member& one) {
    one.train_to(one.rank == 1 ? 150 : 1000);
    one.finish();
  });
  EXPECT_THAT(errors(), Each(AllOf(HasSubstr("64 the ranks have taken different numbers of steps"),
                                   HasSubstr("rank 2 is at step 228, rank 1 is at step 150"))));
}

TEST_F(ShortSteps, ANoticeAfterTheLastVoteIsHeardAtTheEnd) {
  live(3, [](Member& one) {
    one.train_to(150);
    if (one.rank == 2) one.announcer.stop(one.clock.now() + 1h);
    one.train_to(160);
    one.finish();
  });
  expect_all_ended(75);
  EXPECT_THAT(volume->checkpoints(), ElementsAre(HasSubstr("step-000000000160-")));
}

// Between two votes; what it asks for goes into the next one.
TEST_F(ShortSteps, AnEvaluationBetweenVotesDividesNobody) {
  live(2, [](Member& one) {
    one.train_to(150);
    {
      const Checkpointer::EvaluationScope scope(*one.checkpointer);
      one.clock.advance(10min);
      if (one.rank == 1) one.announcer.stop(one.clock.now() + 1h);
      EXPECT_FALSE(one.checkpointer->tick()) << "not agreed yet";
    }
    one.train_to(400);
    one.finish();
  });
  EXPECT_THAT(errors(), Each(std::string()));
  EXPECT_THAT(steps(), Each(229));
  EXPECT_THAT(codes(), Each(75));
}

}}  // namespace holdfast::test
