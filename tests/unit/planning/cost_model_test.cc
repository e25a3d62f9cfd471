#include "holdfast/planning/cost_model.h"

#include <gtest/gtest.h>

namespace holdfast::test { namespace {

using namespace std::chrono_literals;

TEST(CostModel, KnowsNothingAtFirst) {
  const CostModel model;
  EXPECT_EQ(model.costs().commit, std::nullopt);
  EXPECT_EQ(model.costs().step, Duration::zero());
}

TEST(CostModel, OfFewCommitsTheSlowestCounts) {
  CostModel model;
  model.committed(2s);
  model.committed(5s);
  model.committed(3s);
  EXPECT_EQ(model.costs().commit, Duration(5s));
}

TEST(CostModel, OfTwentyCommitsTheSecondSlowest) {
  CostModel model;
  for (int i = 1; i <= 20; ++i) model.committed(std::chrono::seconds(i));
  EXPECT_EQ(model.costs().commit, Duration(19s));
}

TEST(CostModel, OlderCommitsAreForgotten) {
  CostModel model;
  model.committed(100s);
  model.committed(100s);
  for (int i = 0; i < 20; ++i) model.committed(1s);
  EXPECT_EQ(model.costs().commit, Duration(1s));
}

TEST(CostModel, WhatCostsMoreFromNowOnIsNotForgotten) {
  CostModel model;
  for (int i = 1; i <= 20; ++i) model.committed(std::chrono::seconds(i));
  model.scale_commits(8);
  EXPECT_EQ(model.costs().commit, Duration(152s));
  model.committed(1s);
  EXPECT_EQ(model.costs().commit, Duration(152s));
}

TEST(CostModel, OneStepInTwentyMayBeSlow) {
  CostModel model;
  for (int i = 0; i < 64; ++i) model.stepped(i % 21 == 0 ? 9s : 1s);
  EXPECT_EQ(model.costs().step, Duration(9s)) << "4 of 64";
  for (int i = 0; i < 64; ++i) model.stepped(i < 3 ? 9s : 1s);
  EXPECT_EQ(model.costs().step, Duration(1s)) << "3 of 64";
}

TEST(CostModel, OneStepIsEnough) {
  CostModel model;
  model.stepped(3s);
  EXPECT_EQ(model.costs().step, Duration(3s));
}

}}  // namespace holdfast::test
