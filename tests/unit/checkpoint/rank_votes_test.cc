// What ranks vote, and what each of them makes of the result.
#include "holdfast/checkpoint/internal/rank_votes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "rank_rig.h"

namespace holdfast::test { namespace {

using testing::HasSubstr;

class RankVotesTest : public RankTest {
 protected:
  // Of this boundary, with what is rank 1's own.
  SaveHandle save() {
    one->sender.tell_own();
    const internal::Waiting waiting(zero->run.time);
    return zero->engine.boundary_saves.save_now(waiting);
  }
  // What a vote that rank 1 does not take part in ends with, and how long rank 0 waited.
  std::string await_in_vain(Duration& waited) {
    zero->votes.post(Plan{});
    const SteadyTime began = clock.now();
    std::atomic<bool> over{false};
    std::thread time([&] {
      while (!over) {
        clock.advance(2s);
        std::this_thread::sleep_for(25ms);
      }
    });
    std::string error;
    try {
      zero->votes.await("the vote of a step boundary");
    } catch (const Error& lost) {
      error = lost.what();
    }
    over = true;
    time.join();
    waited = clock.now() - began;
    return error;
  }
};

TEST_F(RankVotesTest, AnyRankMayAskForASave) {
  start();
  step();
  EXPECT_FALSE(vote().saves());
  one->engine.schedule.want();
  const Agreed agreed = vote();
  EXPECT_TRUE(agreed.saves());
  EXPECT_EQ(agreed.save, 1);
}

TEST_F(RankVotesTest, TheLeadersScheduleCountsAndForTheNextStep) {
  options.every = {SaveEvery::steps(3)};
  start();
  step();
  Agreed agreed = vote();
  EXPECT_FALSE(agreed.saves());
  EXPECT_EQ(agreed.due, 3);
  step();
  agreed = vote();
  EXPECT_TRUE(agreed.saves()) << "what is agreed here begins at step 3";
  EXPECT_EQ(agreed.save, 0);
}

TEST_F(RankVotesTest, NobodySavesWhileTheOnlyImageIsInUse) {
  start();
  step();
  const internal::Staged held = zero->engine.saves.stage_all();
  one->engine.schedule.want();
  const Agreed agreed = vote();
  EXPECT_EQ(agreed.save, 1);
  EXPECT_EQ(agreed.busy, 0);
  EXPECT_FALSE(agreed.saves());
}

TEST_F(RankVotesTest, TheLeaderPlansByADeadlineThatAnotherRankHears) {
  start();
  step();
  one->hear(NoticeKind::deadline, 300s);
  EXPECT_EQ(vote().left, 300s);
  const internal::Announced& announced = zero->run.outlook.announced();
  ASSERT_TRUE(announced.standing());
  EXPECT_EQ(announced.standing()->source, "another rank");
  EXPECT_EQ(announced.time_left(clock.now()), 300s);
  EXPECT_TRUE(announced.named_deadline()) << "somebody named it";
  EXPECT_EQ(zero->engine.plan().move, Move::commit);

  one->hear(NoticeKind::withdrawn);
  EXPECT_EQ(vote().left, std::nullopt) << "what rank 0 was told does not keep itself alive";
  EXPECT_FALSE(announced.deadline());
  EXPECT_EQ(zero->engine.plan().move, Move::train);
}

// Machines that end a second apart, by clocks that tick apart.
TEST_F(RankVotesTest, AnEndAboutAsNearAsTheOwnStaysOneNotice) {
  start();
  step();
  const internal::Announced& announced = zero->run.outlook.announced();
  one->hear(NoticeKind::deadline, 300s);
  zero->hear(NoticeKind::deadline, 301s + 100ms);
  vote();
  ASSERT_TRUE(announced.others_end());
  const auto seen = announced.standing()->seen;
  zero->hear(NoticeKind::deadline, 300s + 500ms);
  for (int i = 0; i < 3; ++i) {
    step();
    vote();
    ASSERT_TRUE(announced.others_end());
    EXPECT_EQ(announced.standing()->seen, seen);
  }
}

// What has passed leaves no time of its own: the last save is waited for.
TEST_F(RankVotesTest, AStopAfterAnEndThatHasPassedHasNoDeadline) {
  start();
  step();
  one->hear(NoticeKind::deadline, 30s);
  vote();
  clock.advance(31s);
  one->engine.listener.heard();
  step();
  one->hear(NoticeKind::stop);
  Agreed agreed = vote();
  agreed.left = agreed.left.value_or(Duration::zero());
  zero->votes.hear_stop(agreed);
  EXPECT_TRUE(zero->run.outlook.must_stop());
  EXPECT_FALSE(zero->run.outlook.announced().deadline());
  EXPECT_FALSE(zero->run.outlook.out_of_time(clock.now()));
}

TEST_F(RankVotesTest, AStopOfOneRankIsTheStopOfAll) {
  start();
  step();
  one->hear(NoticeKind::stop);
  const Agreed agreed = vote();
  EXPECT_EQ(agreed.stop, 1);
  for (RankParts* rank : {zero.get(), one.get()}) {
    rank->votes.hear_stop(agreed);
    EXPECT_TRUE(rank->run.outlook.must_stop());
  }
  EXPECT_EQ(zero->run.outlook.reason(), "rank 1 was told to stop");
  EXPECT_EQ(one->run.outlook.reason(), "SIGTERM") << "its own words";
}

TEST_F(RankVotesTest, TheOthersLearnWhatIsDurable) {
  start();
  step();
  vote();
  EXPECT_EQ(one->run.started.durable.step, -1);
  EXPECT_EQ(save().wait(), SaveStatus::durable);
  EXPECT_EQ(vote().durable, 1);
  EXPECT_EQ(one->run.started.durable.step, 1);
  EXPECT_EQ(one->run.newest_durable(), 1);
}

TEST_F(RankVotesTest, AllKnowAloneWhetherALastSaveCanEndInTime) {
  start();
  step();
  save().wait();
  zero->run.costs.committed(60s);
  step();
  one->hear(NoticeKind::deadline, 30s);
  EXPECT_TRUE(vote().hopeless());
  one->hear(NoticeKind::withdrawn);
  one->hear(NoticeKind::deadline, 300s);
  EXPECT_FALSE(vote().hopeless());
}

TEST_F(RankVotesTest, ALastSaveThatHasBegunIsNotAskedForAgainAtOnce) {
  start();
  step();
  zero->votes.retry_at(clock.now() + 2s);
  const auto agreed_on = [&] {
    zero->votes.post(Plan{.move = Move::last_commit});
    one->votes.post(Plan{});
    return count();
  };
  Agreed agreed = agreed_on();
  EXPECT_EQ(agreed.pause, 0);
  EXPECT_EQ(agreed.save, -1);
  clock.advance(2s);
  agreed = agreed_on();
  EXPECT_EQ(agreed.save, 0);
}

TEST_F(RankVotesTest, TheLastVoteTellsWhoIsInsideAnUpdate) {
  start();
  step();
  Agreed agreed = vote_last();
  EXPECT_EQ(agreed.torn, -1);
  EXPECT_EQ(agreed.save, 0) << "this step is not covered";
  one->engine.boundary.update_begins();
  EXPECT_EQ(vote_last().torn, 1);
  save().wait();
  EXPECT_EQ(vote_last().save, -1);
}

TEST_F(RankVotesTest, UnequalStepsAreAnErrorThatNamesThem) {
  start();
  step();
  one->step();
  zero->votes.post(Plan{});
  one->votes.post(Plan{});
  try {
    count();
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 1 is at step 2, rank 0 is at step 1"));
  }
}

TEST_F(RankVotesTest, ARankThatDoesNotComeIsWaitedForByTheTimeThatIsLeft) {
  start();
  step();
  Duration waited{};
  EXPECT_THAT(await_in_vain(waited), HasSubstr("nobody came (the vote of a step boundary)"));
  EXPECT_GE(waited, 60s) << "the channel's own timeout";
  EXPECT_FALSE(zero->votes.pending());
}

TEST_F(RankVotesTest, BeforeAnEndARankThatDoesNotComeCostsATenthOfTheTime) {
  start();
  step();
  zero->hear(NoticeKind::deadline, 100s);
  Duration waited{};
  EXPECT_THAT(await_in_vain(waited), HasSubstr("nobody came"));
  EXPECT_GE(waited, 10s);
  EXPECT_LT(waited, 30s);
}

}}  // namespace holdfast::test
