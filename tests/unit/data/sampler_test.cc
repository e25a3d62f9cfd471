#include "holdfast/data/sampler.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <map>
#include <numeric>
#include <thread>
#include <vector>

#include "holdfast/base/error.h"

namespace {

using holdfast::BatchPlan;
using holdfast::Cursor;
using holdfast::Permutation;
using holdfast::PlanOptions;
using holdfast::Slice;

bool is_bijection(const Permutation& order) {
  std::vector<char> seen(static_cast<std::size_t>(order.size()));
  for (std::int64_t i = 0; i < order.size(); ++i) {
    const std::int64_t value = order(i);
    if (value < 0 || value >= order.size() || seen[static_cast<std::size_t>(value)]++ != 0) return false;
  }
  return true;
}

TEST(Permutation, IsABijectionForEverySizeUpTo10000) {
  std::atomic<std::int64_t> next{1};
  std::atomic<std::int64_t> bad{0};
  const auto work = [&] {
    for (std::int64_t size = next++; size <= 10'000; size = next++) {
      if (!is_bijection(Permutation(static_cast<std::uint64_t>(size) * 77, size % 5, size))) bad = size;
    }
  };
  std::thread other(work);
  work();
  other.join();
  EXPECT_EQ(bad, 0) << "the largest size that failed";
}

TEST(Permutation, IsABijectionAroundPowersOfTwoAndForLargeSizes) {
  for (const std::int64_t size : {16'383, 16'384, 16'385, 50'000, 65'535, 65'536, 65'537, 1'281'167}) {
    EXPECT_TRUE(is_bijection(Permutation(3, 1, size))) << size;
  }
}

TEST(Permutation, ReachesBeyond32Bits) {
  const std::int64_t size = (std::int64_t{1} << 40) + 3;
  const Permutation order(3, 1, size);
  std::int64_t highest = 0;
  for (std::int64_t i = 0; i < 100; ++i) {
    const std::int64_t value = order(size - 1 - i);
    ASSERT_GE(value, 0);
    ASSERT_LT(value, size);
    highest = std::max(highest, value);
  }
  EXPECT_GT(highest, size / 2);
}

// The order is part of every recorded run: a change here is a change of the format.
TEST(Permutation, NeverChanges) {
  const Permutation order(42, 3, 50'000);
  std::vector<std::int64_t> first;
  for (std::int64_t i = 0; i < 5; ++i) first.push_back(order(i));
  EXPECT_EQ(first, (std::vector<std::int64_t>{33856, 45017, 26104, 35662, 13659}));
  std::int64_t digest = 0;
  for (const std::int64_t size : {5, 60, 50'000}) {
    const Permutation whole(7, 1, size);
    for (std::int64_t i = 0; i < size; ++i) digest = (digest * 31 + whole(i)) % 1'000'000'007;
  }
  EXPECT_EQ(digest, 297746355);
}

TEST(Permutation, DiffersBetweenSeedsAndEpochs) {
  const Permutation a(1, 0, 1000);
  const Permutation b(2, 0, 1000);
  const Permutation c(1, 1, 1000);
  int equal = 0;
  for (std::int64_t i = 0; i < 1000; ++i) equal += (a(i) == b(i)) + (a(i) == c(i)) + (b(i) == c(i));
  EXPECT_LT(equal, 20);  // 3 are expected by chance
}

// chi^2 of `counts` against equal frequencies, in standard deviations from its mean.
double chi_square_z(const std::vector<int>& counts, double dof) {
  const double mean = std::accumulate(counts.begin(), counts.end(), 0.0) / static_cast<double>(counts.size());
  double chi = 0;
  for (const int count : counts) chi += (count - mean) * (count - mean) / mean;
  return (chi - dof) / std::sqrt(2 * dof);
}

TEST(Permutation, AllOrdersOfSmallSetsAreEquallyLikely) {
  for (const std::int64_t size : {2, 3, 4, 5, 6}) {
    std::map<std::vector<std::int64_t>, int> seen;
    int orders = 1;
    for (std::int64_t i = 2; i <= size; ++i) orders *= static_cast<int>(i);
    for (std::int64_t epoch = 0; epoch < orders * 100; ++epoch) {
      const Permutation order(11, epoch, size);
      std::vector<std::int64_t> all;
      for (std::int64_t i = 0; i < size; ++i) all.push_back(order(i));
      ++seen[all];
    }
    std::vector<int> counts(static_cast<std::size_t>(orders));
    std::size_t at = 0;
    for (const auto& entry : seen) counts[at++] = entry.second;
    EXPECT_LT(std::abs(chi_square_z(counts, orders - 1)), 4.5) << size;
  }
}

TEST(Permutation, EverySampleIsEquallyLikelyAtEveryPosition) {
  constexpr std::int64_t kSize = 100;
  std::vector<int> counts(kSize * kSize);
  for (std::int64_t epoch = 0; epoch < 5000; ++epoch) {
    const Permutation order(5, epoch, kSize);
    for (std::int64_t i = 0; i < kSize; ++i) ++counts[static_cast<std::size_t>(i * kSize + order(i))];
  }
  EXPECT_LT(std::abs(chi_square_z(counts, (kSize - 1.0) * (kSize - 1.0))), 4.5);
}

TEST(Permutation, NeighboursAreIndependent) {
  constexpr std::int64_t kSize = 64;
  std::vector<int> counts(kSize - 1);  // (next - this) mod size, never 0
  for (std::int64_t epoch = 0; epoch < 2000; ++epoch) {
    const Permutation order(9, epoch, kSize);
    for (std::int64_t i = 0; i + 1 < kSize; ++i) {
      ++counts[static_cast<std::size_t>((order(i + 1) - order(i) + kSize) % kSize - 1)];
    }
  }
  EXPECT_LT(chi_square_z(counts, kSize - 2), 4.5);
}

std::vector<Slice> all_of(BatchPlan plan, std::size_t most = 1000) {
  std::vector<Slice> slices;
  while (slices.size() < most) {
    const auto slice = plan.next();
    if (!slice) break;
    slices.push_back(*slice);
  }
  return slices;
}

TEST(BatchPlan, DropsTheLastPartialBatchAndCrossesEpochs) {
  const PlanOptions options{.size = 10, .batch_size = 4, .epochs = 2};
  const auto slices = all_of(BatchPlan(options));
  ASSERT_EQ(slices.size(), 4u);
  EXPECT_EQ(slices[0].begin, 0);
  EXPECT_EQ(slices[0].end, 4);
  EXPECT_EQ(slices[0].after, (Cursor{0, 4}));
  EXPECT_FALSE(slices[0].last_in_epoch);
  EXPECT_EQ(slices[1].end, 8);
  EXPECT_EQ(slices[1].after, (Cursor{0, 10}));
  EXPECT_TRUE(slices[1].last_in_epoch);
  EXPECT_EQ(slices[2].epoch, 1);
  EXPECT_EQ(slices[2].begin, 0);
  EXPECT_EQ(slices[3].after, (Cursor{1, 10}));
  EXPECT_EQ(BatchPlan(options).batches_per_epoch(), 2);
}

TEST(BatchPlan, EvaluationKeepsEverySampleOnceForAnyWorldSize) {
  for (std::int64_t world = 1; world <= 4; ++world) {
    for (std::int64_t size = 1; size <= 25; ++size) {
      std::vector<int> seen(static_cast<std::size_t>(size));
      for (std::int64_t rank = 0; rank < world; ++rank) {
        const PlanOptions options{
            .size = size, .batch_size = 3, .epochs = 1, .drop_last = false, .shard = {rank, world}};
        const auto slices = all_of(BatchPlan(options));
        EXPECT_EQ(static_cast<std::int64_t>(slices.size()), BatchPlan(options).batches_per_epoch());
        for (const Slice& slice : slices) {
          for (std::int64_t i = slice.begin; i < slice.end; ++i) ++seen[static_cast<std::size_t>(i)];
        }
      }
      EXPECT_EQ(seen, std::vector<int>(static_cast<std::size_t>(size), 1)) << size << " on " << world;
    }
  }
}

TEST(BatchPlan, AllWorldSizesWalkThroughTheSameGlobalOrder) {
  constexpr std::int64_t kGlobal = 12;
  std::vector<std::vector<std::vector<std::int64_t>>> orders;
  for (const std::int64_t world : {1, 2, 3, 4}) {
    std::vector<std::vector<std::int64_t>> updates(8);
    for (std::int64_t rank = 0; rank < world; ++rank) {
      BatchPlan plan({.size = 50, .batch_size = kGlobal / world, .epochs = 2, .shard = {rank, world}});
      for (auto& update : updates) {
        const auto slice = plan.next();
        ASSERT_TRUE(slice);
        for (std::int64_t i = slice->begin; i < slice->end; ++i) update.push_back(slice->epoch * 1000 + i);
      }
      EXPECT_FALSE(plan.next());
    }
    orders.push_back(updates);
  }
  for (const auto& order : orders) EXPECT_EQ(order, orders.front());
}

TEST(BatchPlan, AccumulationGivesWholeUpdatesOnly) {
  const PlanOptions options{.size = 32, .batch_size = 4, .accumulation = 3, .epochs = 2};
  const auto slices = all_of(BatchPlan(options));
  ASSERT_EQ(slices.size(), 12u);  // 2 updates of 12 samples an epoch; 8 samples dropped
  for (std::size_t i = 0; i < slices.size(); ++i) {
    EXPECT_EQ(slices[i].completes_update, i % 3 == 2) << i;
    EXPECT_EQ(slices[i].last_in_epoch, i % 6 == 5) << i;
  }
  EXPECT_EQ(slices[2].after, (Cursor{0, 12}));
  EXPECT_EQ(slices[5].after, (Cursor{0, 32}));
  EXPECT_EQ(BatchPlan(options).updates_per_epoch(), 2);
  EXPECT_EQ(BatchPlan(options).batches_per_epoch(), 6);
}

TEST(BatchPlan, GoesOnFromAnyUpdate) {
  for (const std::int64_t accumulation : {1, 3}) {
    for (const bool drop_last : {true, false}) {
      const PlanOptions options{
          .size = 41, .batch_size = 4, .accumulation = accumulation, .epochs = 3, .drop_last = drop_last};
      const auto straight = all_of(BatchPlan(options));
      for (std::size_t i = 0; i < straight.size(); ++i) {
        if (!straight[i].completes_update) continue;
        const auto rest = all_of(BatchPlan(options, straight[i].after));
        ASSERT_EQ(rest.size(), straight.size() - i - 1);
        for (std::size_t j = 0; j < rest.size(); ++j) {
          EXPECT_EQ(rest[j].epoch, straight[i + 1 + j].epoch);
          EXPECT_EQ(rest[j].begin, straight[i + 1 + j].begin);
          EXPECT_EQ(rest[j].end, straight[i + 1 + j].end);
          EXPECT_EQ(rest[j].after, straight[i + 1 + j].after);
        }
      }
    }
  }
}

TEST(BatchPlan, BothSpellingsOfAnEpochsEndMeanTheSame) {
  const PlanOptions options{.size = 10, .batch_size = 4, .epochs = 2};
  EXPECT_EQ(all_of(BatchPlan(options, {0, 10})).front().after,
            all_of(BatchPlan(options, {1, 0})).front().after);
  EXPECT_TRUE(all_of(BatchPlan(options, {2, 0})).empty());
}

TEST(BatchPlan, WithoutALimitItIsEndless) {
  EXPECT_EQ(all_of(BatchPlan({.size = 10, .batch_size = 10}), 500).back().epoch, 499);
}

TEST(BatchPlan, RefusesWhatCannotWork) {
  using holdfast::RefusedError;
  using holdfast::UsageError;
  EXPECT_THROW(BatchPlan({.size = 0}), UsageError);
  EXPECT_THROW(BatchPlan({.size = 10, .batch_size = 0}), UsageError);
  EXPECT_THROW(BatchPlan({.size = 10, .batch_size = 4, .accumulation = 0}), UsageError);
  EXPECT_THROW(BatchPlan({.size = 10, .batch_size = 4, .epochs = -1}), UsageError);
  EXPECT_THROW(BatchPlan({.size = 10, .batch_size = 4, .shard = {2, 2}}), UsageError);
  EXPECT_THROW(BatchPlan({.size = 10, .batch_size = 11}), UsageError);
  EXPECT_THROW(BatchPlan({.size = 10, .batch_size = 4, .accumulation = 3}), UsageError);
  const PlanOptions none_for_rank_1{.size = 4, .batch_size = 4, .drop_last = false, .shard = {1, 2}};
  EXPECT_THROW(BatchPlan{none_for_rank_1}, UsageError) << "it would look for a batch for ever";
  EXPECT_NO_THROW(BatchPlan({.size = 10, .batch_size = 11, .drop_last = false}));
  EXPECT_THROW(BatchPlan({.size = 10, .batch_size = 4}, {0, 11}), RefusedError);
  EXPECT_THROW(BatchPlan({.size = 10, .batch_size = 4}, {-1, 0}), RefusedError);
}

}  // namespace
