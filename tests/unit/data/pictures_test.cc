#include "holdfast/data/pictures.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <numeric>

#include "holdfast/base/error.h"
#include "holdfast/data/synthetic.h"
#include "unit/data/memory_state.h"

namespace {

using holdfast::AugmentOptions;
using holdfast::PictureDataset;
using holdfast::PictureSet;
using holdfast::synthetic_pictures;
using holdfast::UsageError;

TEST(PictureDataset, MakesBatchesOfTheRightTypesAndShapes) {
  const PictureDataset data(synthetic_pictures(20).train, {});
  holdfast::TensorPool pool;
  const std::array<std::int64_t, 3> samples{3, 19, 0};
  const auto fields = data.get_batch({.seed = 1, .epoch = 0, .samples = samples}, pool);
  ASSERT_EQ(fields.size(), 2u);
  EXPECT_EQ(fields[0].sizes(), (at::IntArrayRef{3, 3, 32, 32}));
  EXPECT_EQ(fields[0].scalar_type(), at::kFloat);
  EXPECT_EQ(fields[1].scalar_type(), at::kLong);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    EXPECT_EQ(fields[1][static_cast<std::int64_t>(i)].item<std::int64_t>(),
              data.pictures().label(samples[i]));
  }
}

TEST(PictureDataset, EvaluationIsTheNormalisedPicture) {
  const PictureDataset data(synthetic_pictures(5).train, AugmentOptions{}.for_evaluation());
  holdfast::TensorPool pool;
  const std::array<std::int64_t, 1> samples{4};
  const auto fields = data.get_batch({.seed = 1, .epoch = 9, .samples = samples}, pool);
  const holdfast::NormalizeTable table{AugmentOptions{}};
  const float* values = fields[0].const_data_ptr<float>();
  for (std::size_t i = 0; i < 3072; ++i) {
    ASSERT_EQ(values[i], table.value[i / 1024][data.pictures().pixels(4)[i]]);
  }
}

TEST(PictureDataset, WhatABatchHoldsDoesNotDependOnItsNeighbours) {
  const PictureDataset data(synthetic_pictures(50).train, {});
  holdfast::TensorPool pool;
  const std::array<std::int64_t, 3> together{7, 8, 9};
  const std::array<std::int64_t, 1> alone{8};
  const auto many = data.get_batch({.seed = 5, .epoch = 2, .samples = together}, pool);
  const auto one = data.get_batch({.seed = 5, .epoch = 2, .samples = alone}, pool);
  EXPECT_TRUE(many[0][1].equal(one[0][0]));
  const auto later = data.get_batch({.seed = 5, .epoch = 3, .samples = alone}, pool);
  EXPECT_FALSE(later[0].equal(one[0]));
}

TEST(PictureDataset, RecordsItsOptions) {
  holdfast_test::MemoryState state;
  PictureDataset(synthetic_pictures(5).train, {.padding = 2, .flip = false}).save_options(state);
  EXPECT_EQ(state.get_int("crop_padding"), 2);
  EXPECT_FALSE(state.get_bool("flip"));
  EXPECT_EQ(state.get_doubles("mean").size(), 3u);
  EXPECT_TRUE(state.options.contains("stddev"));
}

TEST(PictureDataset, RefusesOptionsThatCannotWork) {
  EXPECT_THROW(PictureDataset(synthetic_pictures(5).train, {.padding = -1}), UsageError);
  EXPECT_THROW(PictureDataset(synthetic_pictures(5).train, {.padding = 33}), UsageError);
  EXPECT_THROW(PictureDataset(synthetic_pictures(5).train, {.stddev = {0.2F, 0.0F, 0.2F}}), UsageError);
}

TEST(PictureSet, TheFingerprintSeesEveryByteAndTheShape) {
  PictureSet set = synthetic_pictures(10).train;
  const std::string before = set.fingerprint();
  EXPECT_EQ(before.size(), 32u);
  EXPECT_EQ(before, synthetic_pictures(10).train.fingerprint());
  set.record(9)[3072] ^= 1;
  EXPECT_NE(set.fingerprint(), before);
  set.record(9)[3072] ^= 1;
  EXPECT_EQ(set.fingerprint(), before);
  set.record(0)[0] ^= 1;
  EXPECT_NE(set.fingerprint(), before);
  EXPECT_NE(synthetic_pictures(11).train.fingerprint(), before);
}

TEST(SyntheticPictures, AreDeterministicPrefixesAndTestDiffersFromTrain) {
  const auto few = synthetic_pictures(50);
  const auto many = synthetic_pictures(80);
  EXPECT_EQ(few.train.size(), 50);
  EXPECT_EQ(few.test.size(), 10);
  EXPECT_EQ(synthetic_pictures(1000).test.size(), 200);
  EXPECT_EQ(std::memcmp(few.train.record(0), many.train.record(0), 50 * 3073), 0);
  for (std::int64_t i = 0; i < 10; ++i) {
    EXPECT_NE(std::memcmp(few.train.pixels(i), few.test.pixels(i), 3072), 0);
  }
  EXPECT_THROW(synthetic_pictures(0), UsageError);
}

// Part of every recorded synthetic run, and of the golden tests that use it.
TEST(SyntheticPictures, NeverChange) {
  EXPECT_EQ(synthetic_pictures(100).train.fingerprint(), "0b7684337b331a112ffa4a28504c8445");
}

TEST(SyntheticPictures, CanBeLearnt) {
  const auto splits = synthetic_pictures(2000);
  const auto colours = [](const PictureSet& set, std::int64_t i) {
    std::array<double, 3> mean{};
    for (std::size_t c = 0; c < 3; ++c) {
      const std::uint8_t* plane = set.pixels(i) + c * 1024;
      mean[c] = std::accumulate(plane, plane + 1024, 0.0) / 1024;
    }
    return mean;
  };
  std::array<std::array<double, 3>, 10> centre{};
  std::array<int, 10> count{};
  for (std::int64_t i = 0; i < splits.train.size(); ++i) {
    const auto label = static_cast<std::size_t>(splits.train.label(i));
    ASSERT_LT(label, 10u);
    ++count[label];
    for (std::size_t c = 0; c < 3; ++c) centre[label][c] += colours(splits.train, i)[c];
  }
  for (std::size_t k = 0; k < 10; ++k) {
    EXPECT_GT(count[k], 130);
    for (double& value : centre[k]) value /= count[k];
  }
  int right = 0;
  for (std::int64_t i = 0; i < splits.test.size(); ++i) {
    const auto mean = colours(splits.test, i);
    std::size_t best = 0;
    double nearest = 1e30;
    for (std::size_t k = 0; k < 10; ++k) {
      double distance = 0;
      for (std::size_t c = 0; c < 3; ++c) distance += std::pow(mean[c] - centre[k][c], 2);
      if (distance < nearest) nearest = distance, best = k;
    }
    right += static_cast<int>(best) == splits.test.label(i) ? 1 : 0;
  }
  EXPECT_GT(right, splits.test.size() / 2);  // by colour alone, without the stripes
  EXPECT_LT(right, splits.test.size());      // and not trivial
}

}  // namespace
