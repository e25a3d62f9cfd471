// The distribution of a tensor's values.
#include "holdfast/train/tensor_histogram.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>

namespace holdfast { namespace {

using testing::Each;

TEST(TensorHistogram, CountsEachValueInItsBin) {
  const HistogramEvent event = histogram_of("w", at::arange(65, at::kFloat), 3);
  EXPECT_EQ(event.counts.size(), 64U);
  EXPECT_EQ(event.counts.back(), 2) << "the largest value belongs to the last bin";
  EXPECT_EQ(std::accumulate(event.counts.begin(), event.counts.end(), 0.0), 65);
  EXPECT_EQ(event.limits.front(), 1);
  EXPECT_EQ(event.limits.back(), 64);
  EXPECT_EQ(event.sum, 2080);
}

TEST(TensorHistogram, OfARangeBeyondFloat) {
  const float most = std::numeric_limits<float>::max();
  const HistogramEvent event = histogram_of("w", at::tensor({-most, 0.0F, 1.0F, most}), 3);
  EXPECT_EQ(event.counts.front(), 1);
  EXPECT_EQ(event.counts.at(32), 2);
  EXPECT_EQ(event.counts.back(), 1);
}

TEST(TensorHistogram, LeavesOutWhatIsNotFinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(histogram_of("w", at::tensor({infinity, -infinity, 2.0F}), 3).count, 1);
  EXPECT_THAT(histogram_of("w", at::tensor({infinity}), 3).counts, Each(0));
}

// Of a large one in pieces, of which one has no number.
TEST(TensorHistogram, OfManyElementsIsThatOfAll) {
  const std::int64_t count = (3 << 22) + 5;
  at::Tensor values = at::arange(count, at::kFloat).remainder(64);
  values.slice(0, 1 << 22, 2 << 22).fill_(std::numeric_limits<float>::quiet_NaN());
  const HistogramEvent event = histogram_of("w", values, 3);
  const auto numbers = static_cast<double>(count - (1 << 22));
  EXPECT_EQ(event.count, numbers);
  EXPECT_EQ(event.min, 0);
  EXPECT_EQ(event.max, 63);
  EXPECT_EQ(event.sum, values.nan_to_num(0).sum(at::kDouble).item<double>());
  EXPECT_EQ(std::accumulate(event.counts.begin(), event.counts.end(), 0.0), numbers);
  EXPECT_EQ(event.counts.at(10), (2 << 22) / 64);
}

}}  // namespace holdfast
