#include "holdfast/train/step.h"

#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <cmath>
#include <limits>

#include "holdfast/base/error.h"

namespace holdfast {
namespace {

Batch batch_of(float value, std::int64_t size, bool completes = true) {
  Batch batch;
  batch.inputs = torch::full({size, 3}, value);
  batch.targets = torch::zeros({size, 1});
  batch.completes_update = completes;
  return batch;
}

class StepTest : public ::testing::Test {
 protected:
  StepTest() : net_(3, 1), optimizer_(net_->parameters(), torch::optim::SGDOptions(0.1)) {
    const torch::NoGradGuard no_grad;
    net_->weight.fill_(1);
    net_->bias.fill_(0);
  }
  Step::Loss loss() {
    return [this](const Batch& batch) {
      return torch::nn::functional::mse_loss(net_->forward(batch.inputs), batch.targets);
    };
  }
  torch::nn::Linear net_;
  torch::optim::SGD optimizer_;
};

TEST_F(StepTest, OneBatchIsOneUpdate) {
  Step step(optimizer_, loss());
  int before = 0;
  const auto result = step.run(batch_of(1, 4), [&] {
    ++before;
    EXPECT_FLOAT_EQ(net_->weight[0][0].item<float>(), 1) << "before the update";
    EXPECT_TRUE(net_->weight.grad().defined()) << "after backward";
  });
  ASSERT_TRUE(result);
  EXPECT_EQ(before, 1);
  EXPECT_DOUBLE_EQ(result->loss, 9);  // (1 + 1 + 1)²
  EXPECT_FALSE(result->grad_norm);
  EXPECT_FLOAT_EQ(net_->weight[0][0].item<float>(), 1 - 0.1F * 6);
}

TEST_F(StepTest, AccumulatedMicroBatchesAreTheMean) {
  Step step(optimizer_, loss(), {.accumulation = 3});
  int before = 0;
  const auto count = [&] { ++before; };
  EXPECT_FALSE(step.run(batch_of(1, 2, false), count));
  EXPECT_FALSE(step.run(batch_of(2, 2, false), count));
  EXPECT_EQ(before, 0);
  EXPECT_FLOAT_EQ(net_->weight[0][0].item<float>(), 1);
  const auto result = step.run(batch_of(0, 2), count);
  ASSERT_TRUE(result);
  EXPECT_EQ(before, 1);
  EXPECT_DOUBLE_EQ(result->loss, (9.0 + 36.0 + 0.0) / 3);
  // d/dw of (x(w1+w2+w3))² = 2x²·3: 6, 24, 0; their mean is 10.
  EXPECT_NEAR(net_->weight[0][0].item<float>(), 1 - 0.1 * 10, 1e-5);
  // The next update starts from nothing.
  EXPECT_FALSE(step.run(batch_of(0, 2, false)));
  EXPECT_FALSE(step.run(batch_of(0, 2, false)));
  EXPECT_NEAR(step.run(batch_of(0, 2))->loss, 0.36, 1e-6) << "the bias went by 0.1 times 6";
}

TEST_F(StepTest, LossesAreAddedUpInDouble) {
  Step step(optimizer_, [](const Batch& batch) { return batch.inputs.mean().requires_grad_(); },
            {.accumulation = 2});
  step.run(batch_of(16777216, 1, false));
  EXPECT_EQ(step.run(batch_of(1, 1))->loss, 16777217.0 / 2);
}

TEST_F(StepTest, LoaderAndStepMustAgreeOnTheAccumulation) {
  Step more(optimizer_, loss(), {.accumulation = 3});
  EXPECT_THROW(more.run(batch_of(1, 2)), UsageError);
  Step fewer(optimizer_, loss());
  EXPECT_THROW(fewer.run(batch_of(1, 2, false)), UsageError);
}

TEST_F(StepTest, ClippingScalesTheGradientDown) {
  Step step(optimizer_, loss(), {.clip_grad_norm = 1});
  const auto result = step.run(batch_of(1, 1));
  // Gradient (6, 6, 6) and 6 of the bias: norm 12.
  EXPECT_NEAR(*result->grad_norm, 12, 1e-5);
  EXPECT_NEAR(net_->weight[0][0].item<float>(), 1 - 0.1 * 0.5, 1e-4);
  EXPECT_FALSE(result->skipped);
}

TEST_F(StepTest, AGradientThatIsNotFiniteIsLeftOut) {
  Step step(optimizer_, loss(), {.clip_grad_norm = 1});
  const auto result = step.run(batch_of(std::numeric_limits<float>::infinity(), 1));
  EXPECT_TRUE(result->skipped);
  EXPECT_FALSE(std::isfinite(result->loss));
  EXPECT_FLOAT_EQ(net_->weight[0][0].item<float>(), 1);
  EXPECT_FALSE(step.run(batch_of(1, 1))->skipped);
}

TEST_F(StepTest, WrongOptions) {
  EXPECT_THROW(Step(optimizer_, loss(), {.accumulation = 0}), UsageError);
  EXPECT_THROW(Step(optimizer_, loss(), {.clip_grad_norm = -1}), UsageError);
  torch::optim::LBFGS needs_closure(net_->parameters());
  EXPECT_THROW(Step(needs_closure, loss()), UsageError);
}

}  // namespace
}  // namespace holdfast
