// The late copy of live tensors: whatever a loop may lawfully do before its next update, the image gets the
// bits of the step boundary.
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <thread>

#include "holdfast/state/train_state.h"
#include "unit/state/modules.h"
#include "unit/state/staging.h"

namespace holdfast::test { namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A small trained model with slots.
struct Trained {
  torch::nn::Linear net{64, 48};
  torch::optim::AdamW optimizer{net->parameters(), torch::optim::AdamWOptions(0.1)};
  TrainState state;

  Trained() {
    state.add("model", *net);
    state.add("optimizer", optimizer);
    update();
  }
  void update() {
    optimizer.zero_grad();
    net->forward(at::rand({4, 64})).square().sum().backward();
    optimizer.step();
  }
};

// The early part now, the late part once `meanwhile` is over.
std::string staged_beside(SnapshotSource& source, const std::function<void()>& meanwhile) {
  const auto snapshot = empty_snapshot(source);
  snapshot->attributes = source.attributes();
  snapshot->step = source.position().step;
  source.copy(*snapshot->layout, snapshot->arena->bytes(), Part::early);
  const auto late = source.copy(*snapshot->layout, snapshot->arena->bytes(), Part::late);
  meanwhile();
  std::thread helper([&] { late->run(); });
  late->run();
  helper.join();
  EXPECT_THAT(late->changed(), IsEmpty());
  return digest(*snapshot);
}

TEST(LateTensors, AreThoseOfTheBoundary) {
  Trained run;
  const std::string whole = digest(run.state);
  EXPECT_EQ(staged_beside(run.state,
                          [&] {
                            run.optimizer.zero_grad();
                            run.net->forward(at::rand({4, 64})).sum().backward();
                          }),
            whole);
}

TEST(LateTensors, SurviveAModuleThatIsCastMeanwhile) {
  Trained run;
  const std::string whole = digest(run.state);
  EXPECT_EQ(staged_beside(run.state,
                          [&] {
                            run.net->to(at::kHalf);
                            for (const at::Tensor& parameter : run.net->parameters()) {
                              const torch::NoGradGuard no_grad;
                              parameter.fill_(3);
                            }
                          }),
            whole);
}

// Transposed, channels_last, a single row of a matrix, gaps, no elements, one element; of every element size.
TEST(LateTensors, UnusualStridesAreCopiedBesideTheTraining) {
  for (const c10::ScalarType type : {at::kChar, at::kBFloat16, at::kFloat, at::kDouble, at::kComplexDouble}) {
    const auto drawn = [&](at::IntArrayRef sizes) { return (at::rand(sizes) * 100).to(type); };
    Bag bag;
    const std::vector<at::Tensor> tensors = {
        drawn({30, 20}).t(),
        drawn({8, 16, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast),
        drawn({40, 7}).select(1, 3),
        drawn({6, 10, 4}).slice(1, 2, 9, 3),
        drawn({0, 5}).t(),
        drawn({3, 1, 1}).transpose(0, 2),
        drawn({5, 6, 7, 8}).permute({2, 0, 3, 1}),
    };
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      bag.parameter("p" + std::to_string(i), tensors[i], at::isFloatingType(type));
    }
    torch::optim::SGD optimizer(bag.parameters(), torch::optim::SGDOptions(0.1));
    TrainState state;
    state.add("model", bag);
    state.add("optimizer", optimizer);
    EXPECT_EQ(staged_beside(state, [] {}), digest(state)) << type;
  }
}

TEST(LateTensors, UnusualStridesThatChangeAreNamed) {
  torch::nn::Conv2d net(torch::nn::Conv2dOptions(8, 16, 3));
  net->weight.set_data(net->weight.detach().contiguous(at::MemoryFormat::ChannelsLast));
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1));
  TrainState state;
  state.add("model", *net);
  state.add("optimizer", optimizer);
  const auto snapshot = empty_snapshot(state);
  const auto late = state.copy(*snapshot->layout, snapshot->arena->bytes(), Part::late);
  late->run();
  EXPECT_THAT(late->changed(), IsEmpty());
  {
    const torch::NoGradGuard no_grad;
    net->weight[15][7][2][2].add_(1);
  }
  EXPECT_THAT(late->changed(), ElementsAre("model/weight"));
}

TEST(LateTensors, WhatChangedIsNamed) {
  Trained run;
  const auto snapshot = empty_snapshot(run.state);
  const auto late = run.state.copy(*snapshot->layout, snapshot->arena->bytes(), Part::late);
  late->run();
  EXPECT_THAT(late->changed(), IsEmpty());
  run.update();
  EXPECT_THAT(late->changed(), ElementsAre("model/weight", "model/bias", "optimizer/exp_avg/weight",
                                           "optimizer/exp_avg_sq/weight", "optimizer/exp_avg/bias",
                                           "optimizer/exp_avg_sq/bias"));
}

TEST(LateTensors, NamedOnesAreEarlyFromThenOn) {
  Trained run;
  const std::vector<std::string> names = {"model/bias", "optimizer/exp_avg/weight"};
  run.state.learn({.early = names});
  const auto early = empty_snapshot(run.state);
  run.state.copy(*early->layout, early->arena->bytes(), Part::early);
  const auto whole = stage(run.state);
  for (const std::string& name : names) EXPECT_EQ(values<float>(*early, name), values<float>(*whole, name));
  EXPECT_EQ(staged_beside(run.state, [] {}), digest(*whole));
}

}}  // namespace holdfast::test
