#include "holdfast/checkpoint/interval_planner.h"

#include <gtest/gtest.h>

#include <cmath>

namespace holdfast {
namespace {

using namespace std::chrono_literals;

double seconds(Duration time) { return std::chrono::duration<double>(time).count(); }

// So many lives of a Weibull distribution, evenly over its quantiles.
std::vector<MachineLife> lives_of(double shape, double scale, int count) {
  std::vector<MachineLife> lives;
  for (int i = 0; i < count; ++i) {
    const double length = scale * std::pow(-std::log1p(-(i + 0.5) / count), 1 / shape);
    lives.push_back({std::chrono::duration_cast<Duration>(std::chrono::duration<double>(length)), true});
  }
  return lives;
}

double share_under(const LifeModel& model, Duration age) {
  return 1 - std::exp(-model.hazard(0s, age) * seconds(age));
}

TEST(LifeModel, WithoutLivesItIsThatOfThePublicTraces) {
  const LifeModel model;
  EXPECT_NEAR(share_under(model, 39min), 0.5, 0.03);
  EXPECT_NEAR(share_under(model, 10min), 0.25, 0.03);
}

TEST(LifeModel, ManyLivesOutweighTheTraces) {
  const LifeModel model(lives_of(1.5, 36'000, 400));
  EXPECT_NEAR(model.shape(), 1.5, 0.2);
  EXPECT_NEAR(seconds(model.scale()), 36'000, 3000);
}

TEST(LifeModel, AFewLivesMoveItALittle) {
  const LifeModel none;
  const LifeModel some({{30h, true}, {40h, true}});
  EXPECT_GT(some.scale(), none.scale());
  EXPECT_LT(some.scale(), 10h);
}

TEST(LifeModel, ALifeThatGoesOnSpeaksForLongOnes) {
  std::vector<MachineLife> ended = lives_of(0.6, 4320, 8);
  std::vector<MachineLife> going = ended;
  ended.push_back({5h, true});
  going.push_back({5h, false});
  EXPECT_GT(LifeModel(going).scale(), LifeModel(ended).scale());
}

// Half of these lives were cut off by us: that tells nothing against long ones.
TEST(LifeModel, LivesThatWereCutOffDoNotBendTheShape) {
  std::vector<MachineLife> lives = lives_of(1, 7200, 4000);
  for (MachineLife& life : lives) {
    if (life.length > 1h) life = {1h, false};
  }
  EXPECT_NEAR(LifeModel(lives).shape(), 1, 0.1);
  EXPECT_NEAR(seconds(LifeModel(lives).scale()), 7200, 700);
}

TEST(LifeModel, WhoHasLivedLongLivesOn) {
  const LifeModel model;
  EXPECT_GT(model.hazard(0s, 5min), 2 * model.hazard(2h, 5min));
}

TEST(LifeModel, NonsenseIsLeftOut) {
  const LifeModel model({{0s, true}, {-5s, true}, {0s, false}});
  EXPECT_DOUBLE_EQ(model.shape(), LifeModel().shape());
  EXPECT_TRUE(std::isfinite(LifeModel(std::vector<MachineLife>(1000, {1ns, true})).hazard(0s, 1min)));
  EXPECT_TRUE(
      std::isfinite(LifeModel(std::vector<MachineLife>(1000, {Duration::max(), false})).hazard(0s, 1min)));
}

TEST(PlanInterval, WithAConstantHazardItIsYoungs) {
  const LifeModel model(lives_of(1, 7200, 20'000));
  const Duration interval = plan_interval({.stall = 500ms, .write = 1s}, model, 3h, {});
  EXPECT_NEAR(seconds(interval), std::sqrt(2 * 0.5 * 7200), 3);
}

TEST(PlanInterval, OldMachinesAreSavedLessOften) {
  const LifeModel model;
  EXPECT_LT(plan_interval({.stall = 1s, .write = 1s}, model, 0s, {}),
            plan_interval({.stall = 1s, .write = 1s}, model, 6h, {}));
}

TEST(PlanInterval, KeepsTheBudget) {
  const LifeModel model(lives_of(1, 60, 10'000));  // a minute each: Young would save all the time
  const Duration interval = plan_interval({.stall = 2s, .write = 1s}, model, 0s, {});
  EXPECT_EQ(interval, 200s);
  EXPECT_EQ(plan_interval({.stall = 2s, .write = 1s}, model, 0s, {.stall_budget = 0.05}), 40s);
}

TEST(PlanInterval, LeavesTheVolumeThreeQuartersOfItsTime) {
  EXPECT_EQ(plan_interval({.stall = 0s, .write = 20s}, LifeModel(), 0s, {}), 80s);
}

TEST(PlanInterval, StaysBetweenTheLimits) {
  EXPECT_EQ(plan_interval({.stall = 0s, .write = 0s}, LifeModel(), 0s, {}), 30s);
  EXPECT_EQ(plan_interval({.stall = 10s, .write = 1s}, LifeModel(lives_of(1, 1e7, 1000)), 0s, {}), 30min);
}

// The budget is a promise; the longest interval is only a wish.
TEST(PlanInterval, AnExpensiveSaveMayGoBeyondTheLongest) {
  EXPECT_EQ(plan_interval({.stall = 60s, .write = 60s}, LifeModel(), 0s, {}), 6000s);
}

}  // namespace
}  // namespace holdfast
