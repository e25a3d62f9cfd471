// Weights that are cast together have the bits of weights that autocast casts one by one, with two operators
// for all of them.
#include "holdfast/precision/cast_together.h"

#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <functional>
#include <optional>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/precision/autocast.h"
#include "support/operator_counts.h"

namespace holdfast { namespace {

torch::nn::Sequential make_net() {
  torch::manual_seed(3);
  torch::nn::Sequential net;
  for (int i = 0; i < 5; ++i) {
    net->push_back(torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 4, 3).padding(1)));
    net->push_back(torch::nn::BatchNorm2d(4));
  }
  net->push_back(torch::nn::Flatten());
  net->push_back(torch::nn::Linear(4 * 36, 3));
  return net;
}

struct Result {
  at::Tensor loss;
  std::vector<at::Tensor> gradients;
  std::int64_t casts = 0, together = 0;
};

Result pass(bool together, const std::function<void(torch::nn::Sequential&)>& change = {}) {
  torch::nn::Sequential net = make_net();
  if (change) change(net);
  torch::manual_seed(4);
  const at::Tensor pictures = at::randn({2, 4, 6, 6});
  const CastTogether casts(*net);
  Result result;
  for (int pass = 0; pass < 2; ++pass) {
    const test::OperatorCounts counts;
    {
      const AutocastGuard autocast(Precision::bf16, at::kCPU);
      std::optional<CastTogether::Scope> cast;
      if (together) cast.emplace(casts, at::kBFloat16);
      result.loss = net->forward(pictures).sum();
    }
    result.casts = counts.of("aten::_to_copy");
    result.together = counts.outermost("aten::_foreach_copy_");
    result.loss.backward();
  }
  for (const at::Tensor& parameter : net->parameters()) {
    EXPECT_EQ(parameter.scalar_type(), at::kFloat);
    result.gradients.push_back(parameter.grad().defined() ? parameter.grad() : at::Tensor());
  }
  return result;
}

void expect_same(const Result& one, const Result& other) {
  EXPECT_TRUE(one.loss.equal(other.loss));
  ASSERT_EQ(one.gradients.size(), other.gradients.size());
  for (std::size_t i = 0; i < one.gradients.size(); ++i) {
    ASSERT_EQ(one.gradients[i].defined(), other.gradients[i].defined()) << i;
    if (!one.gradients[i].defined()) continue;
    EXPECT_EQ(one.gradients[i].scalar_type(), at::kFloat);
    EXPECT_TRUE(one.gradients[i].equal(other.gradients[i])) << i;
  }
}

TEST(CastTogether, TwoOperatorsHaveTheBitsOfOneForEachTensor) {
  const Result alone = pass(false), together = pass(true);
  expect_same(alone, together);
  // Five convolutions and a linear layer, each with weight and bias.
  EXPECT_EQ(alone.casts - together.casts, 12);
  EXPECT_EQ(together.together, 1);
}

TEST(CastTogether, FrozenAndTiedWeightsAreAsUnderAutocast) {
  const auto change = [](torch::nn::Sequential& net) {
    net[0]->as<torch::nn::Conv2d>()->weight.set_requires_grad(false);
    net[2]->as<torch::nn::Conv2d>()->weight = net[4]->as<torch::nn::Conv2d>()->weight;
  };
  expect_same(pass(false, change), pass(true, change));
}

TEST(CastTogether, TheLayersHaveTheirParametersAgainAlsoAfterAnException) {
  torch::nn::Linear layer(2, 3);
  const CastTogether casts(*layer);
  try {
    const CastTogether::Scope cast(casts, at::kBFloat16);
    EXPECT_EQ(layer->weight.scalar_type(), at::kBFloat16);
    EXPECT_EQ(layer->parameters()[0].scalar_type(), at::kFloat) << "the optimizer's";
    throw Error("planted");
  } catch (const Error&) {
  }
  EXPECT_TRUE(layer->weight.is_same(layer->parameters()[0]));
  EXPECT_TRUE(layer->bias.is_same(layer->parameters()[1]));
}

TEST(CastTogether, SecondDerivativesAreRefused) {
  torch::nn::Linear layer(2, 3);
  const CastTogether casts(*layer);
  at::Tensor loss;
  {
    const AutocastGuard autocast(Precision::bf16, at::kCPU);
    const CastTogether::Scope cast(casts, at::kBFloat16);
    loss = layer->forward(at::randn({4, 2})).sum();
  }
  EXPECT_THROW(torch::autograd::grad({loss}, {layer->weight}, {}, std::nullopt, /*create_graph=*/true),
               UsageError);
}

}}  // namespace holdfast
