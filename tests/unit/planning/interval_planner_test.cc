#include "holdfast/planning/interval_planner.h"

#include <gtest/gtest.h>

#include <cmath>

namespace holdfast { namespace {

using namespace std::chrono_literals;

constexpr double kTraced = 1 / 7200.0;  // interruptions per second in the public traces

double seconds(Duration time) { return std::chrono::duration<double>(time).count(); }

TEST(HazardOf, WithoutLivesItIsThatOfThePublicTraces) { EXPECT_DOUBLE_EQ(hazard_of({}), kTraced); }

TEST(HazardOf, ManyLivesOutweighTheTraces) {
  EXPECT_NEAR(hazard_of(std::vector<MachineLife>(4000, {10h, true})), 1 / 36'000.0, 1e-6);
}

TEST(HazardOf, EightLivesOfItsOwnCountAsMuchAsTheTraces) {
  EXPECT_DOUBLE_EQ(hazard_of(std::vector<MachineLife>(8, {4h, true})), 1 / (3 * 3600.0));
}

TEST(HazardOf, ALifeThatGoesOnOrWasEndedByUsSpeaksForLongOnes) {
  EXPECT_LT(hazard_of({{5h, false}}), hazard_of({{5h, true}}));
  EXPECT_LT(hazard_of({{5h, false}}), hazard_of({}));
}

TEST(HazardOf, IgnoresLivesThatAreNotPositive) {
  EXPECT_DOUBLE_EQ(hazard_of({{0s, true}, {-5s, true}, {0s, false}}), kTraced);
  EXPECT_TRUE(std::isfinite(hazard_of(std::vector<MachineLife>(1000, {1ns, true}))));
  EXPECT_GT(hazard_of(std::vector<MachineLife>(1000, {Duration::max(), false})), 0);
}

TEST(PlanInterval, IsYoungsFormulaForTracedLives) {
  const Duration interval = plan_interval({.stall = 100ms, .write = 1s}, kTraced, {});
  EXPECT_NEAR(seconds(interval), std::sqrt(2 * 0.1 * 7200), 1e-6);
}

TEST(PlanInterval, KeepsTheBudget) {
  const double hazard = 1 / 60.0;  // Young would save all the time
  EXPECT_EQ(plan_interval({.stall = 2s, .write = 1s}, hazard, {}), 400s);
  EXPECT_EQ(plan_interval({.stall = 2s, .write = 1s}, hazard, {.stall_budget = 0.05}), 40s);
}

TEST(PlanInterval, LeavesTheVolumeThreeQuartersOfItsTime) {
  EXPECT_EQ(plan_interval({.stall = 0s, .write = 20s}, kTraced, {}), 80s);
}

TEST(PlanInterval, StaysBetweenTheLimits) {
  EXPECT_EQ(plan_interval({.stall = 0s, .write = 0s}, kTraced, {}), 10s);
  EXPECT_EQ(plan_interval({.stall = -1s, .write = 0s}, kTraced, {}), 10s);
  EXPECT_EQ(plan_interval({.stall = 8s, .write = 1s}, 1e-7, {}), 30min);
}

// The budget is a promise; the longest interval is only a wish.
TEST(PlanInterval, AnExpensiveSaveMayGoBeyondTheLongest) {
  EXPECT_EQ(plan_interval({.stall = 60s, .write = 60s}, kTraced, {}), 12'000s);
}

}}  // namespace holdfast
