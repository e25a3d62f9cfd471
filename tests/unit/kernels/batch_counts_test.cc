// Counters of batch norms are added to together.
#include "holdfast/kernels/batch_counts.h"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <vector>

#include "support/operator_counts.h"

namespace holdfast { namespace {

std::vector<at::Tensor> counters(int count) {
  std::vector<at::Tensor> all;
  for (int i = 0; i < count; ++i) all.push_back(at::zeros({}, at::kLong));
  return all;
}

TEST(BatchCounts, OneOperatorCountsForAllLayers) {
  const std::vector<at::Tensor> all = counters(53);
  const test::OperatorCounts operators;
  BatchCounts counts;
  for (const at::Tensor& counter : all) BatchCounts::count(counter);
  EXPECT_EQ(operators.of("aten::add_"), 0);
  counts.add();
  EXPECT_EQ(operators.outermost("aten::_foreach_add_"), 1);
  for (const at::Tensor& counter : all) EXPECT_EQ(counter.item<std::int64_t>(), 1);
}

TEST(BatchCounts, ALayerThatRunsTwiceCountsTwice) {
  const std::vector<at::Tensor> all = counters(2);
  BatchCounts counts;
  for (const int i : {0, 1, 0}) BatchCounts::count(all[static_cast<std::size_t>(i)]);
  counts.add();
  EXPECT_EQ(all[0].item<std::int64_t>(), 2);
  EXPECT_EQ(all[1].item<std::int64_t>(), 1);
}

TEST(BatchCounts, WithoutAnObjectItCountsAtOnceAndWithoutAddNever) {
  const std::vector<at::Tensor> all = counters(1);
  BatchCounts::count(all[0]);
  EXPECT_EQ(all[0].item<std::int64_t>(), 1);
  {
    const BatchCounts outer;
    const BatchCounts broken_off;
    BatchCounts::count(all[0]);
  }
  EXPECT_FALSE(BatchCounts::collects());
  EXPECT_EQ(all[0].item<std::int64_t>(), 1);
}

}}  // namespace holdfast
