// Work on many tensors is one operator for all of them, with the bits of one operator each.
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/utils.h>

#include <vector>

#include "holdfast/optim/clip.h"
#include "holdfast/optim/ema.h"
#include "support/operator_counts.h"

namespace holdfast::foreach { namespace {

std::vector<at::Tensor> some_tensors(std::int64_t seed) {
  torch::manual_seed(seed);
  std::vector<at::Tensor> tensors;
  for (const std::int64_t size : {1, 7, 100, 33, 4096}) tensors.push_back(at::randn({size}));
  tensors.push_back(at::randn({3, 5}, at::kDouble));
  return tensors;
}

TEST(Foreach, GradientsAreDividedAndAddedWithTheBitsOfSingleOperators) {
  const std::vector<at::Tensor> gradients = some_tensors(1), expected = some_tensors(1);
  const std::vector<at::Tensor> sums = some_tensors(2), expected_sums = some_tensors(2);
  const at::Tensor divisor = at::full({}, 3.7F);
  {
    const test::OperatorCounts counts;
    divide_gradients(gradients, divisor);
    add_gradients(sums, gradients);
    EXPECT_EQ(counts.outermost("aten::_foreach_div_"), 2) << "one for each type";
    EXPECT_EQ(counts.outermost("aten::_foreach_add_"), 1);
    EXPECT_EQ(counts.outermost("aten::div_") + counts.outermost("aten::add_"), 0);
  }
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    expected[i].div_(divisor);
    expected_sums[i].add_(expected[i]);
    EXPECT_TRUE(gradients[i].equal(expected[i])) << i;
    EXPECT_TRUE(sums[i].equal(expected_sums[i])) << i;
  }
}

TEST(Foreach, AnAverageCopiesBuffersOfATypeTogether) {
  torch::nn::Sequential net;
  for (int i = 0; i < 20; ++i) {
    net->push_back(torch::nn::Conv2d(4, 4, 1));
    net->push_back(torch::nn::BatchNorm2d(4));
  }
  Ema ema(*net, {.decay = 0.5});
  net->forward(at::randn({2, 4, 3, 3}));
  {
    const test::OperatorCounts counts;
    ema.update();
    EXPECT_EQ(counts.outermost("aten::_foreach_copy_"), 2) << "running statistics, and counters";
    EXPECT_EQ(counts.outermost("aten::copy_"), 0) << "60 buffers";
  }
  std::vector<at::Tensor> buffers;
  for (const at::Tensor& buffer : net->buffers()) buffers.push_back(buffer.clone());
  const auto averaged = ema.swap_in();
  std::size_t i = 0;
  for (const at::Tensor& buffer : net->buffers()) EXPECT_TRUE(buffer.equal(buffers[i++]));
}

}}  // namespace holdfast::foreach
