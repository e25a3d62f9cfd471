#include "holdfast/planning/deadline_planner.h"

#include <gtest/gtest.h>

namespace holdfast::test { namespace {

using namespace std::chrono_literals;

constexpr SteadyTime kStart{1000h};
const Costs kCosts{.commit = 20s, .step = 2s};  // reserve: 30 + 2 + 4 s

Plan plan(Duration left, const Standing& standing, OnNotice policy = OnNotice::train_on,
          const Costs& costs = kCosts) {
  return plan_for_deadline(kStart, {.at = kStart + left}, costs, standing, policy);
}

TEST(Reserve, IsOneAndAHalfCommitsAStepTheAgreementAndFourSeconds) {
  EXPECT_EQ(reserve({.commit = 20s, .step = 2s, .agreement = 1s}), Duration(37s));
  EXPECT_EQ(reserve({}), Duration(4s));
}

TEST(TrainOn, CommitsAtOnceAsInsurance) {
  EXPECT_EQ(plan(120s, {}).move, Move::commit);
  EXPECT_EQ(plan(120s, {.insured = true}).move, Move::train);
  EXPECT_EQ(plan(120s, {.covered = true}).move, Move::train);
}

TEST(TrainOn, ThenTrainsUntilTheReserve) {
  EXPECT_EQ(plan(36s + 1ns, {.insured = true}).move, Move::train);
  EXPECT_EQ(plan(36s, {.insured = true}).move, Move::last_commit);
}

TEST(TrainOn, LeavesTheLastCommitItsTime) {
  EXPECT_TRUE(plan(56s + 1ns, {.insured = true}).room);
  EXPECT_FALSE(plan(56s, {.insured = true}).room);
}

TEST(TrainOn, ThenWaits) {
  EXPECT_EQ(plan(30s, {.covered = true, .insured = true}).move, Move::wait);
  EXPECT_FALSE(plan(30s, {.covered = true, .insured = true}).too_late);
  EXPECT_EQ(plan(-59s, {.covered = true, .insured = true}).move, Move::wait);
}

TEST(Planner, AMachineThatLivesAMinuteAfterItsDeadlineIsKept) {
  for (const OnNotice policy : {OnNotice::train_on, OnNotice::wait, OnNotice::exit}) {
    EXPECT_EQ(plan(-60s, {.covered = true}, policy).move, Move::go_on);
  }
}

TEST(Planner, NeverBeginsWhatCannotEnd) {
  for (const OnNotice policy : {OnNotice::train_on, OnNotice::wait}) {
    EXPECT_EQ(plan(20s, {}, policy).move, Move::last_commit);
    EXPECT_FALSE(plan(20s, {}, policy).too_late);
    EXPECT_EQ(plan(20s - 1ns, {}, policy).move, policy == OnNotice::wait ? Move::wait : Move::train);
    EXPECT_FALSE(plan(20s - 1ns, {}, policy).room && policy == OnNotice::train_on);
    EXPECT_TRUE(plan(20s - 1ns, {}, policy).too_late);
  }
  EXPECT_EQ(plan(19s, {}, OnNotice::exit).move, Move::stop);
  EXPECT_TRUE(plan(19s, {}, OnNotice::exit).too_late);
  const Costs slow{.commit = 300s};
  EXPECT_EQ(plan(306s, {}, OnNotice::train_on, slow).move, Move::last_commit);
  EXPECT_EQ(plan(120s, {}, OnNotice::train_on, slow).move, Move::train);
  EXPECT_TRUE(plan(120s, {}, OnNotice::train_on, slow).too_late);
}

TEST(Planner, CountsWhatIsLeftOfAWriteInFlight) {
  EXPECT_EQ(plan(35s, {.writing = 5s}).move, Move::last_commit);
  EXPECT_EQ(plan(34s, {.writing = 5s}).move, Move::train);
  EXPECT_TRUE(plan(34s, {.writing = 5s}).too_late);
  EXPECT_EQ(plan(34s, {.writing = 6s}).move, Move::last_commit) << "it may end in time after all";
}

TEST(Planner, AWriteThatTakesLongerThanMeasuredIsTheCost) {
  EXPECT_EQ(plan(60s, {.insured = true, .writing = 30s}).move, Move::train) << "reserve: 45 + 2 + 4 s";
  EXPECT_EQ(plan(51s, {.insured = true, .writing = 30s}).move, Move::last_commit);
  EXPECT_TRUE(plan(29s, {.insured = true, .writing = 30s}).too_late);
  EXPECT_EQ(plan(40s, {.insured = true, .writing = 30s}, OnNotice::train_on, {}).move, Move::last_commit)
      << "nothing else is known";
}

TEST(Planner, TriesWhileNothingIsMeasured) {
  EXPECT_EQ(plan(120s, {}, OnNotice::train_on, {}).move, Move::commit);
  EXPECT_EQ(plan(3s, {}, OnNotice::train_on, {}).move, Move::last_commit);
  EXPECT_EQ(plan(0s, {}, OnNotice::train_on, {}).move, Move::train) << "too late";
}

TEST(Wait, CommitsAtOnceAndWaits) {
  EXPECT_EQ(plan(120s, {}, OnNotice::wait).move, Move::last_commit);
  EXPECT_EQ(plan(120s, {.covered = true}, OnNotice::wait).move, Move::wait);
}

TEST(Exit, StopsAtOnce) {
  EXPECT_EQ(plan(120s, {}, OnNotice::exit).move, Move::stop);
  EXPECT_FALSE(plan(120s, {}, OnNotice::exit).too_late);
}

TEST(Hibernation, CommitsAtOnceAndTrainsOnUnderEveryPolicy) {
  for (const OnNotice policy : {OnNotice::train_on, OnNotice::wait, OnNotice::exit}) {
    const auto at = [&](Duration left, const Standing& standing) {
      return plan_for_deadline(kStart, {.at = kStart + left, .hibernates = true}, kCosts, standing, policy);
    };
    EXPECT_EQ(at(30s, {}).move, Move::commit);
    EXPECT_EQ(at(30s, {.insured = true}).move, Move::train);
    EXPECT_EQ(at(10s, {}).move, Move::train);
    EXPECT_TRUE(at(10s, {}).too_late);
    EXPECT_EQ(at(-60s, {}).move, Move::go_on);
  }
}

TEST(Stop, CommitsWhereThereIsTime) {
  EXPECT_EQ(plan_for_stop(kStart, kStart + 25s, kCosts, {}).move, Move::stop);
  EXPECT_FALSE(plan_for_stop(kStart, kStart + 25s, kCosts, {}).too_late);
  EXPECT_FALSE(plan_for_stop(kStart, std::nullopt, kCosts, {}).too_late);
  EXPECT_TRUE(plan_for_stop(kStart, kStart + 19s, kCosts, {}).too_late);
  EXPECT_FALSE(plan_for_stop(kStart, kStart + 19s, kCosts, {.covered = true}).too_late);
  EXPECT_FALSE(plan_for_stop(kStart, kStart, kCosts, {}).too_late) << "the machine lives";
}

// Two minutes of notice, a disk and steps that take what was measured: what is lost is less than the reserve.
TEST(TrainOn, ReplaysANotice) {
  SteadyTime now = kStart;
  const Deadline deadline{.at = kStart + 120s};
  Standing standing;
  int commits = 0;
  int steps = 0;
  SteadyTime committing{};
  while (true) {
    const Plan next = plan_for_deadline(now, deadline, kCosts, standing, OnNotice::train_on);
    if (next.move == Move::train || next.move == Move::commit) {
      if (next.move == Move::commit) {
        ++commits;
        standing.insured = true;
        committing = now;
      }
      now += 2s;
      ++steps;
      standing.writing.reset();
      if (now < committing + 20s) standing.writing = now - committing;
      continue;
    }
    ASSERT_EQ(next.move, Move::last_commit);
    ++commits;
    break;
  }
  EXPECT_EQ(commits, 2);
  EXPECT_EQ(steps, 42) << "until 36 s before the deadline";
  EXPECT_LE(now + *kCosts.commit, deadline.at - 14s);
}

}}  // namespace holdfast::test
