// bench/spot_replay's plan for a run with a standby.
#include "bench/spot_replay/hand_over.h"

#include <gtest/gtest.h>

#include <optional>

namespace holdfast::bench { namespace {

using namespace std::chrono_literals;

constexpr SteadyTime kNoticed{1000h};
const Costs kHandOverCosts{.commit = 20s, .step = 2s};  // reserve: 30 + 2 + 4 s

Plan hand_over(std::optional<Duration> left, const Standing& standing, bool ready,
               OnNotice policy = OnNotice::train_on) {
  std::optional<Deadline> deadline;
  if (left) deadline = Deadline{.at = kNoticed + *left};
  return plan_for_hand_over(kNoticed, deadline, kHandOverCosts, standing, policy, ready);
}

TEST(HandOver, TrainsUntilTheStandbyIsReadyThenCommitsAndEnds) {
  EXPECT_EQ(hand_over(120s, {}, false).move, Move::commit) << "as insurance: the standby may never come";
  EXPECT_EQ(hand_over(100s, {.insured = true}, false).move, Move::train);
  EXPECT_EQ(hand_over(100s, {.insured = true}, true).move, Move::stop);
  EXPECT_FALSE(hand_over(100s, {.insured = true}, true).too_late);
  EXPECT_EQ(hand_over(100s, {.covered = true, .insured = true}, true).move, Move::stop);
}

TEST(HandOver, ADeadlineThatComesFirstIsNotWaitedFor) {
  EXPECT_EQ(hand_over(36s + 1ns, {.insured = true}, false).move, Move::train);
  EXPECT_EQ(hand_over(36s, {.insured = true}, false).move, Move::stop);
  EXPECT_FALSE(hand_over(36s, {.insured = true}, false).too_late) << "it commits before";
  EXPECT_EQ(hand_over(36s, {.covered = true, .insured = true}, false).move, Move::stop);
}

TEST(HandOver, BeginsNoCommitThatCannotEnd) {
  EXPECT_TRUE(hand_over(19s, {}, true).too_late);
  EXPECT_EQ(hand_over(19s, {}, true).move, Move::stop) << "the older checkpoint is handed over";
  EXPECT_EQ(hand_over(19s, {}, false).move, Move::train) << "a step costs nothing";
  EXPECT_EQ(hand_over(19s, {}, false, OnNotice::wait).move, Move::stop);
}

TEST(HandOver, AnEndThatIsOnlyFearedNeedsAStandby) {
  EXPECT_EQ(hand_over(std::nullopt, {}, false).move, Move::train);
  EXPECT_EQ(hand_over(std::nullopt, {}, true).move, Move::stop);
  EXPECT_FALSE(hand_over(std::nullopt, {}, true).too_late);
}

TEST(HandOver, AGuessedDeadlineForbidsNoCommit) {
  const Deadline guessed{.at = kNoticed + 1s, .guessed = true};
  EXPECT_FALSE(plan_for_hand_over(kNoticed, guessed, kHandOverCosts, {}, OnNotice::train_on, true).too_late);
}

TEST(HandOver, AMachineThatOutlivesItsDeadlineGoesOnUnlessTheStandbyIsReady) {
  EXPECT_EQ(hand_over(-60s, {.covered = true}, false).move, Move::go_on);
  EXPECT_EQ(hand_over(-60s, {.covered = true}, true).move, Move::stop);
}

}}  // namespace holdfast::bench
