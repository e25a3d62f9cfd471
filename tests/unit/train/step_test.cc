#include "holdfast/train/step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/distributed/data_parallel.h"
#include "holdfast/distributed/process_group.h"
#include "holdfast/distributed/sharded_optimizer.h"
#include "holdfast/optim/fused_adam.h"
#include "holdfast/optim/fused_sgd.h"
#include "holdfast/precision/grad_scaler.h"
#include "support/captured_log.h"

namespace holdfast { namespace {

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

// Each sample of the smaller one would count more than the others.
TEST_F(StepTest, TellsOnceOfBatchesOfDifferentSizesInOneUpdate) {
  test::CapturedLog log;
  Step step(optimizer_, loss(), {.accumulation = 2});
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(step.run(batch_of(1, 32, false)));
    EXPECT_TRUE(step.run(batch_of(2, 4)));
  }
  const std::string told = "a batch of 32 samples and one of 4";
  const std::string text = log.text();
  EXPECT_THAT(text, testing::HasSubstr(told));
  EXPECT_EQ(text.find(told), text.rfind(told));
}

// A batch without targets, say.
TEST_F(StepTest, AnUpdateWithoutAGradientEndsNoTraining) {
  bool depends = true;
  Step step(optimizer_, [&](const Batch& batch) {
    if (depends) return net_->forward(batch.inputs).mean();
    return batch.inputs.mean().detach().requires_grad_();
  });
  EXPECT_TRUE(step.run(batch_of(1, 4)));
  depends = false;
  EXPECT_TRUE(step.run(batch_of(2, 4)));
}

// It would train nothing, for ever: the gradients are the module's, and the optimizer's parameters are shares.
TEST_F(StepTest, RefusesTheOptimizerOfAShardedOptimizerWithTheRemedy) {
  ProcessGroup group({.place = {}});
  const ShardedOptimizer sharded(optimizer_, *net_, group);
  GradScaler scaler(at::kCPU);
  for (const StepOptions& options : {StepOptions{}, StepOptions{.clip_grad_norm = 1, .scaler = &scaler}}) {
    Step step(optimizer_, loss(), options);
    try {
      step.run(batch_of(1, 4));
      ADD_FAILURE() << "trained nothing";
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("ranks_in_detail#the-sharded-optimizer"));
    }
  }
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

TEST_F(StepTest, MicroBatchesMayBeClippedOneByOne) {
  for (const bool scaled : {false, true}) {
    const torch::NoGradGuard no_grad;
    net_->weight.fill_(1);
    net_->bias.fill_(0);
    GradScaler scaler(at::kCPU, {.init_scale = 1024});
    Step step(optimizer_, loss(),
              {.clip_micro_batches = 1, .accumulation = 2, .scaler = scaled ? &scaler : nullptr});
    const torch::AutoGradMode with_gradients(true);
    // Of a half of the mean: 3x² for each weight and 3x for the bias. At 1 that is a norm of 6, at 0.1 one
    // of 0.3.
    EXPECT_FALSE(step.run(batch_of(1, 2, false)));
    const auto result = step.run(batch_of(0.1F, 2));
    EXPECT_FALSE(result->skipped);
    EXPECT_NEAR(net_->weight[0][1].item<float>(), 1 - 0.1 * (0.5 + 0.03), 1e-6) << scaled;
    EXPECT_NEAR(net_->bias[0].item<float>(), -0.1 * (0.5 + 0.3), 1e-6) << scaled;
  }
  EXPECT_THROW(Step(optimizer_, loss(), {.clip_micro_batches = -1}), UsageError);
}

TEST_F(StepTest, LossesAreAddedUpInDouble) {
  Step step(optimizer_, [this](const Batch& batch) { return batch.inputs.mean() + net_->weight.sum() * 0; },
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

// One network in a precision, with an optimizer of a kind.
template <class Optimizer, class Options>
struct Trained {
  explicit Trained(const Options& options, Precision precision = Precision::fp32, double init_scale = 0,
                   std::int64_t accumulation = 1)
      : net((torch::manual_seed(7), torch::nn::Linear(3, 1))), optimizer(net->parameters(), options) {
    if (init_scale > 0) {
      scaler = std::make_unique<GradScaler>(at::kCPU, GradScalerOptions{.init_scale = init_scale});
    }
    step = std::make_unique<Step>(
        optimizer,
        [this](const Batch& batch) {
          const at::Tensor answers = net->forward(batch.inputs);
          type = answers.scalar_type();
          return torch::nn::functional::mse_loss(answers, batch.targets.to(answers.scalar_type()));
        },
        StepOptions{.accumulation = accumulation, .precision = precision, .scaler = scaler.get()});
  }
  StepResult run(float value) { return step->run(batch_of(value, 4)).value(); }

  torch::nn::Linear net;
  Optimizer optimizer;
  std::unique_ptr<GradScaler> scaler;
  std::unique_ptr<Step> step;
  at::ScalarType type = at::kFloat;
};
using Sgd = Trained<torch::optim::SGD, torch::optim::SGDOptions>;
using FusedSgdTrained = Trained<FusedSgd, torch::optim::SGDOptions>;

const torch::optim::SGDOptions kSgd = torch::optim::SGDOptions(0.01).momentum(0.9);

TEST(StepPrecision, TheLossIsComputedUnderAutocastAndTheWeightsStayFP32) {
  for (const auto& [precision, type] : {std::pair(Precision::fp32, at::kFloat),
                                        {Precision::bf16, at::kBFloat16},
                                        {Precision::fp16, at::kHalf}}) {
    Sgd trained(kSgd, precision, needs_scaler(precision) ? 1024 : 0);
    const double first = trained.run(1).loss;
    EXPECT_EQ(trained.type, type);
    EXPECT_EQ(trained.net->weight.scalar_type(), at::kFloat);
    EXPECT_EQ(trained.net->weight.grad().scalar_type(), at::kFloat);
    EXPECT_FALSE(at::ones({2, 2}).mm(at::ones({2, 2})).scalar_type() != at::kFloat) << "outside again";
    double last = 0;
    for (int i = 0; i < 30; ++i) last = trained.run(1).loss;
    EXPECT_LT(last, first / 5) << word_of(precision);
  }
}

TEST(StepPrecision, APowerOfTwoAsScaleChangesNoBit) {
  Sgd plain(kSgd), scaled(kSgd, Precision::fp32, 65536);
  for (int i = 0; i < 20; ++i) {
    const auto value = static_cast<float>(i % 3) - 0.75F;
    EXPECT_EQ(plain.run(value).loss, scaled.run(value).loss);
  }
  EXPECT_TRUE(plain.net->weight.equal(scaled.net->weight));
}

TEST(StepPrecision, AnOverflowIsLeftOutAndHalvesTheScale) {
  const auto leaves_out = [](auto&& trained) {
    trained.run(1);
    const at::Tensor weight = trained.net->weight.detach().clone();
    const StepResult bad = trained.run(std::numeric_limits<float>::infinity());
    EXPECT_TRUE(bad.skipped);
    EXPECT_TRUE(weight.equal(trained.net->weight));
    EXPECT_EQ(trained.scaler->scale_tensor().template item<float>(), 512);
    EXPECT_EQ(trained.scaler->skipped(), 1);
    EXPECT_FALSE(trained.run(1).skipped);
    EXPECT_FALSE(weight.equal(trained.net->weight));
  };
  leaves_out(Sgd(kSgd, Precision::fp16, 1024));
  leaves_out(FusedSgdTrained(kSgd, Precision::fp16, 1024));
  leaves_out(FusedSgdTrained(kSgd, Precision::fp32, 1024));
}

TEST(StepPrecision, SkippedUpdatesDoNotCountForAdam) {
  const auto parameters = [](auto&& trained, bool with_overflows) {
    for (int i = 0; i < 6; ++i) {
      if (with_overflows) {
        EXPECT_TRUE(trained.run(std::numeric_limits<float>::quiet_NaN()).skipped);
      }
      EXPECT_FALSE(trained.run(1).skipped);
    }
    return trained.net->weight.detach().clone();
  };
  // Scales of powers of two: the one that was halved gives the same bits.
  using Adam = Trained<torch::optim::Adam, torch::optim::AdamOptions>;
  using Fused = Trained<FusedAdam, torch::optim::AdamOptions>;
  const torch::optim::AdamOptions options(0.1);
  EXPECT_TRUE(parameters(Adam(options, Precision::fp32, 4096), false)
                  .equal(parameters(Adam(options, Precision::fp32, 4096), true)));
  EXPECT_TRUE(parameters(Fused(options, Precision::fp32, 4096), false)
                  .equal(parameters(Fused(options, Precision::fp32, 4096), true)));
}

TEST(StepPrecision, FusedAndPlainAgreeStepByStepRoundOverflows) {
  Sgd plain(kSgd, Precision::fp16, 65536.0 * 65536);  // overflows until it is low enough
  FusedSgdTrained fused(kSgd, Precision::fp16, 65536.0 * 65536);
  int skipped = 0;
  for (int i = 0; i < 40; ++i) {
    const StepResult one = plain.run(1), other = fused.run(1);
    EXPECT_EQ(one.loss, other.loss) << i;
    EXPECT_EQ(one.skipped, other.skipped) << i;
    skipped += one.skipped ? 1 : 0;
  }
  EXPECT_GT(skipped, 10);
  EXPECT_LT(skipped, 40);
  EXPECT_TRUE(plain.net->weight.equal(fused.net->weight));
}

TEST(StepPrecision, OneMicroBatchThatOverflowsSpoilsTheWholeAccumulation) {
  Sgd trained(kSgd, Precision::fp16, 1024, /*accumulation=*/3);
  const at::Tensor weight = trained.net->weight.detach().clone();
  EXPECT_FALSE(trained.step->run(batch_of(std::numeric_limits<float>::infinity(), 4, false)));
  EXPECT_FALSE(trained.step->run(batch_of(1, 4, false)));
  EXPECT_EQ(trained.scaler->scale_tensor().item<float>(), 1024) << "the scale stands still in between";
  EXPECT_TRUE(trained.step->run(batch_of(1, 4))->skipped);
  EXPECT_TRUE(weight.equal(trained.net->weight));
  EXPECT_EQ(trained.scaler->scale_tensor().item<float>(), 512) << "halved once";
  for (const bool last : {false, false, true}) {
    const auto result = trained.step->run(batch_of(1, 4, last));
    EXPECT_EQ(result.has_value(), last);
    EXPECT_FALSE(result && result->skipped);
  }
  EXPECT_FALSE(weight.equal(trained.net->weight));
}

TEST(StepPrecision, AccumulationIsTheMeanInEveryPrecision) {
  for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
    const double scale = needs_scaler(precision) ? 1024 : 0;
    Sgd parts(kSgd, precision, scale, 2), whole(kSgd, precision, scale);
    parts.step->run(batch_of(1, 4, false));
    const auto result = parts.step->run(batch_of(1, 4));
    EXPECT_NEAR(result->loss, whole.run(1).loss, 1e-6) << "the mean of two equal ones";
    EXPECT_TRUE(at::allclose(parts.net->weight, whole.net->weight, 1e-3, 1e-5)) << word_of(precision);
  }
}

TEST(StepPrecision, ClippingComesAfterUnscaling) {
  torch::manual_seed(7);
  torch::nn::Linear net(3, 1);
  FusedSgd optimizer(net->parameters(), torch::optim::SGDOptions(1));
  GradScaler scaler(at::kCPU, {.init_scale = 4096});
  Step step(optimizer,
            [&](const Batch& batch) {
              return torch::nn::functional::mse_loss(net->forward(batch.inputs), batch.targets + 100);
            },
            {.clip_grad_norm = 0.5, .scaler = &scaler});
  const at::Tensor weight = net->weight.detach().clone(), bias = net->bias.detach().clone();
  const auto result = step.run(batch_of(1, 4));
  EXPECT_LT(*result->grad_norm, 1000) << "of the gradients, not of the scaled ones";
  const double change = std::sqrt((net->weight - weight).square().sum().item<double>() +
                                  (net->bias - bias).square().sum().item<double>());
  EXPECT_NEAR(change, 0.5, 1e-4);
  EXPECT_TRUE(step.run(batch_of(std::numeric_limits<float>::infinity(), 4))->skipped);
  EXPECT_EQ(scaler.skipped(), 1);
}

// An overflow that this rank does not see, in its gradients or in its norm: all ranks leave the update out.
TEST(StepPrecision, WhatAnotherRankFoundIsLeftOutAlsoWhereGradientsAreClipped) {
  for (const int found_in : {1, 2}) {
    torch::manual_seed(7);
    torch::nn::Linear net(3, 1);
    FusedSgd optimizer(net->parameters(), torch::optim::SGDOptions(1));
    GradScaler scaler(at::kCPU, {.init_scale = 4096});
    int calls = 0;
    scaler.agree_by([&](at::Tensor& flag) {
      if (++calls == found_in) flag.fill_(1);
    });
    Step step(optimizer,
              [&](const Batch& batch) {
                return torch::nn::functional::mse_loss(net->forward(batch.inputs), batch.targets + 100);
              },
              {.clip_grad_norm = 0.5, .scaler = &scaler});
    const at::Tensor weight = net->weight.detach().clone();
    EXPECT_TRUE(step.run(batch_of(1, 4))->skipped);
    EXPECT_TRUE(net->weight.equal(weight));
    EXPECT_EQ(scaler.skipped(), found_in == 1 ? 1 : 0) << "a norm alone does not lower the scale";
    EXPECT_FALSE(step.run(batch_of(1, 4))->skipped);
  }
}

// `even_alone`: through the Reducer and the sum of losses. The same bits, with and without.
TEST(StepParallel, AWorldOfOneChangesNothing) {
  const auto train = [](ProcessGroup* group, std::int64_t accumulation) {
    torch::manual_seed(7);
    torch::nn::Linear net(3, 1);
    FusedSgd optimizer(net->parameters(), kSgd);
    std::optional<DataParallel> parallel;
    if (group != nullptr) parallel.emplace(*net, *group);
    Step step(optimizer,
              [&](const Batch& batch) {
                return torch::nn::functional::mse_loss(net->forward(batch.inputs), batch.targets + 1);
              },
              {.accumulation = accumulation, .parallel = parallel ? &*parallel : nullptr});
    std::vector<double> losses;
    for (int i = 0; i < 12; ++i) {
      const auto update =
          step.run(batch_of(static_cast<float>(i % 5) - 1.3F, 4, (i + 1) % accumulation == 0));
      if (update) losses.push_back(update->loss);
    }
    return std::pair(losses, net->weight.detach().clone());
  };
  ProcessGroup one({.place = {}}), even({.place = {}, .even_alone = true});
  for (const std::int64_t accumulation : {1, 3}) {
    const auto [losses, weight] = train(nullptr, accumulation);
    EXPECT_EQ(losses.size(), 12U / static_cast<std::size_t>(accumulation));
    for (ProcessGroup* const group : {&one, &even}) {
      const auto [same_losses, same_weight] = train(group, accumulation);
      EXPECT_EQ(same_losses, losses);
      EXPECT_TRUE(same_weight.equal(weight));
    }
  }
  even.leave();
}

TEST_F(StepTest, WithOtherRanksThereAreNoGraphsAndNoMicroBatchIsClipped) {
  ProcessGroup even({.place = {}, .even_alone = true});
  DataParallel parallel(*net_, even);
  EXPECT_THROW(Step(optimizer_, loss(), {.clip_micro_batches = 1, .parallel = &parallel}), UsageError);
  testing::internal::CaptureStderr();
  Step step(optimizer_, loss(), {.parallel = &parallel, .graph = true});
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::HasSubstr("without CUDA graphs"));
  EXPECT_DOUBLE_EQ(step.run(batch_of(1, 4))->loss, 9);
  EXPECT_FALSE(step.replayed());
  even.leave();
}

TEST_F(StepTest, RefusesWrongOptions) {
  EXPECT_THROW(Step(optimizer_, loss(), {.precision = Precision::fp16}), UsageError) << "without a scaler";
  EXPECT_THROW(Step(optimizer_, loss(), {.accumulation = 0}), UsageError);
  EXPECT_THROW(Step(optimizer_, loss(), {.clip_grad_norm = -1}), UsageError);
  torch::optim::LBFGS needs_closure(net_->parameters());
  EXPECT_THROW(Step(needs_closure, loss()), UsageError);
}

}}  // namespace holdfast
