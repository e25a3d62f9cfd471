// Which steps vote.
#include "holdfast/planning/vote_cadence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace holdfast::run { namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;

// The steps that vote of 1…last, where each vote has that result; its step is set here.
std::vector<std::int64_t> votes_of(std::int64_t last, const std::function<Vote(std::int64_t)>& result) {
  VoteCadence cadence;
  std::vector<std::int64_t> votes;
  bool pending = false;
  for (std::int64_t step = 1; step <= last; ++step) {
    if (pending) {
      Vote agreed = result(step - 1);
      agreed.highest = step - 1;
      cadence.learn(agreed);
    }
    pending = cadence.votes_at(step);
    if (pending) votes.push_back(step);
  }
  return votes;
}

Vote steps_of(Duration time) {
  Vote agreed;
  agreed.step_time = time;
  return agreed;
}

TEST(VoteCadence, GrowsToOneVoteASecond) {
  EXPECT_THAT(votes_of(500, [](std::int64_t) { return steps_of(10ms); }),
              ElementsAre(1, 3, 7, 15, 31, 63, 127, 227, 327, 427));
}

TEST(VoteCadence, VotesLessOftenInALargeWorld) {
  const auto longest_pause = [](int world_size) {
    VoteCadence cadence(world_size);
    std::int64_t step = 0, pause = 0;
    for (int vote = 0; vote < 20; ++vote) {
      Vote agreed = steps_of(10ms);
      agreed.highest = step;
      cadence.learn(agreed);
      const std::int64_t before = step;
      while (!cadence.votes_at(step) || step == before) ++step;
      pause = step - before;
    }
    return pause * 10ms;
  };
  EXPECT_EQ(longest_pause(512), 1s);
  EXPECT_EQ(longest_pause(1024), 2s);
  EXPECT_EQ(longest_pause(100'000), 4s);
}

TEST(VoteCadence, VotesAtEveryStepWhileTheStepTimeIsUnknownOrASecond) {
  for (const Duration time : {Duration::zero(), Duration(1s), Duration(2h), Duration(501ms)}) {
    EXPECT_THAT(votes_of(4, [&](std::int64_t) { return steps_of(time); }), ElementsAre(1, 2, 3, 4));
  }
}

TEST(VoteCadence, GoesByTheNewestStepTime) {
  EXPECT_THAT(votes_of(40, [](std::int64_t step) { return steps_of(step < 10 ? 10ms : 400ms); }),
              ElementsAre(1, 3, 7, 15, 17, 19, 21, 23, 25, 27, 29, 31, 33, 35, 37, 39));
}

TEST(VoteCadence, HasALimitForTheShortestSteps) {
  const auto votes = votes_of(10'000, [](std::int64_t) { return steps_of(1ns); });
  EXPECT_EQ(votes.back() - votes[votes.size() - 2], VoteCadence::kMostSteps);
}

TEST(VoteCadence, VotesAStepBeforeASaveFallsDue) {
  const auto votes = votes_of(90, [](std::int64_t step) {
    Vote agreed = steps_of(1ms);
    agreed.due = (step / 20 + 1) * 20;
    if (step % 20 == 19) agreed.save = 0;
    return agreed;
  });
  // After the vote for a save, the next vote tells when another falls due.
  EXPECT_THAT(votes, ElementsAre(1, 3, 7, 15, 19, 20, 39, 40, 59, 60, 79, 80));
}

TEST(VoteCadence, ASaveThatIsDueAndMustWaitForABusyRankDoesNotMakeEveryStepVote) {
  const auto votes = votes_of(40, [](std::int64_t) {
    Vote agreed = steps_of(1ms);
    agreed.due = 4;
    agreed.save = 0;
    agreed.busy = 1;
    return agreed;
  });
  EXPECT_THAT(votes, ElementsAre(1, 3, 7, 15, 31));
}

TEST(VoteCadence, AnAnnouncedEndIsAnsweredAtOnceAndANearOneIsVotedOnAtEachStep) {
  const auto with_end = [](std::optional<Duration> left, Duration needs) {
    return [=](std::int64_t step) {
      Vote agreed = steps_of(1ms);
      agreed.needs = needs;
      if (step >= 7) agreed.left.any = left.value_or(kNoEnd);
      return agreed;
    };
  };
  EXPECT_THAT(votes_of(40, with_end(1h, 10s)), ElementsAre(1, 3, 7, 8, 24));
  EXPECT_THAT(votes_of(10, with_end(60s, 0s)), ElementsAre(1, 3, 7, 8, 9, 10));
  EXPECT_THAT(votes_of(10, with_end(79s, 10s)), ElementsAre(1, 3, 7, 8, 9, 10));
}

}}  // namespace holdfast::run
