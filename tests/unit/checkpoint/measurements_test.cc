#include "holdfast/checkpoint/measurements.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "holdfast/base/error.h"

namespace holdfast::test { namespace {

using testing::ElementsAre;
using testing::Pair;

TEST(Measurements, TheNewestStaysWithItsStep) {
  Measurements all;
  all.add("accuracy", 10, 0.5);
  EXPECT_THAT(all.recorded().at("accuracy"), ElementsAre(Pair(10, 0.5)));
  all.add("accuracy", 20, 0.4);
  EXPECT_THAT(all.recorded().at("accuracy"), ElementsAre(Pair(20, 0.4)));
}

TEST(Measurements, WhatBelongsToASavedStepStays) {
  Measurements all;
  all.saved(10);  // before its evaluation
  all.add("accuracy", 10, 0.5);
  all.add("accuracy", 20, 0.4);
  all.add("accuracy", 30, 0.6);
  all.saved(30);  // after it
  all.add("accuracy", 40, 0.7);
  EXPECT_THAT(all.recorded().at("accuracy"), ElementsAre(Pair(10, 0.5), Pair(30, 0.6), Pair(40, 0.7)));
}

TEST(Measurements, OneStepOneValue) {
  Measurements all;
  all.add("accuracy", 10, 0.5);
  all.add("accuracy", 10, 0.6);
  EXPECT_THAT(all.recorded().at("accuracy"), ElementsAre(Pair(10, 0.6)));
}

TEST(Measurements, GoOnFromWhatACheckpointRecorded) {
  Measurements all(Metrics{{"accuracy", {{10, 0.5}, {20, 0.6}}}});
  all.add("accuracy", 30, 0.4);
  EXPECT_THAT(all.recorded().at("accuracy"), ElementsAre(Pair(10, 0.5), Pair(20, 0.6), Pair(30, 0.4)));
}

TEST(Measurements, OfManyTheExtremesAndTheNewestStay) {
  Measurements all;
  constexpr std::int64_t kCount = 1000;
  for (std::int64_t step = 0; step < kCount; ++step) {
    all.add("x", step, step == 7 ? -1 : step == 9 ? 5000 : std::nan(""));
    all.saved(step);
  }
  const auto& kept = all.recorded().at("x");
  EXPECT_EQ(kept.size(), 64u);
  EXPECT_TRUE(kept.contains(7));
  EXPECT_TRUE(kept.contains(9));
  EXPECT_TRUE(kept.contains(kCount - 1));
}

TEST(Measurements, OfRisingValuesBothEndsStay) {
  Measurements all;
  for (std::int64_t step = 0; step < 500; ++step) {
    all.add("x", step, static_cast<double>(step));
    all.saved(step);
  }
  for (std::int64_t i = 0; i < 16; ++i) {
    EXPECT_TRUE(all.recorded().at("x").contains(i)) << i;
    EXPECT_TRUE(all.recorded().at("x").contains(499 - i)) << i;
  }
}

TEST(Measurements, KnowWhetherAValueIsAmongTheBest) {
  Measurements all(Metrics{{"x", {{1, 5}, {2, 7}, {3, std::nan("")}}}});
  const KeepBest best{"x", 1, Better::higher};
  const KeepBest two{"x", 2, Better::higher};
  all.add("x", 10, 6);
  EXPECT_FALSE(all.among_best(best, 10));
  EXPECT_TRUE(all.among_best(two, 10));
  all.add("x", 20, 8);
  EXPECT_TRUE(all.among_best(best, 20));
  all.add("x", 30, 7);
  EXPECT_FALSE(all.among_best(best, 30));  // no better than the best
  EXPECT_TRUE(all.among_best({"x", 3, Better::lower}, 30));
  EXPECT_FALSE(all.among_best({"y", 3, Better::lower}, 30));
  all.add("x", 40, std::nan(""));
  EXPECT_FALSE(all.among_best({"x", 100, Better::higher}, 40));
}

TEST(Measurements, NamesAreChecked) {
  Measurements all;
  for (const std::string name : {"", "loss", "a b", "a,b", "a=b", "ä"}) {
    EXPECT_THROW(all.add(name, 1, 0), UsageError) << name;
  }
  for (int i = 0; i < 16; ++i) all.add("m" + std::to_string(i), 1, 0);
  EXPECT_THROW(all.add("m16", 1, 0), UsageError);
  all.add("m15", 2, 0);
}

}}  // namespace holdfast::test
