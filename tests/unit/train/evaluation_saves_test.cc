// Saves that fall into an evaluation, as loops without an EvaluationScope have them: the checkpoint has the
// training's modes and weights.
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <memory>
#include <string>

#include "holdfast/checkpoint/checkpointer.h"
#include "holdfast/optim/ema.h"
#include "holdfast/state/train_state.h"
#include "support/captured_log.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

struct EvaluatingProgram {
  explicit EvaluatingProgram(const std::filesystem::path& directory)
      : net(torch::nn::Linear(4, 4), torch::nn::BatchNorm1d(4), torch::nn::Dropout(0.5)),
        sgd(net->parameters(), torch::optim::SGDOptions(0.1)) {
    net[1]->as<torch::nn::BatchNorm1d>()->eval();  // frozen statistics
    state.add("model", *net);
    state.add("optimizer", sgd);
    CheckpointerOptions options;
    options.directory = directory;
    options.every = {};
    options.keep = KeepLast{2} | KeepBest{.metric = "accuracy", .better = Better::higher};
    options.notices = {.hear_signals = false, .cloud = false};
    checkpointer = std::make_unique<Checkpointer>(state, options);
    checkpointer->resume();
  }
  void train(int steps) {
    for (int i = 0; i < steps; ++i) {
      sgd.zero_grad();
      net->forward(at::ones({2, 4})).sum().backward();
      sgd.step();
      checkpointer->after_step({.applied = {{0, state.step() + 1}}});
    }
  }
  torch::nn::Sequential net;
  torch::optim::SGD sgd;
  TrainState state;
  std::unique_ptr<Checkpointer> checkpointer;
};

class EvaluationSaves : public testing::Test {
 protected:
  void expect_modes_of_the_training() {
    EvaluatingProgram resumed(directory_.path() / "run");
    EXPECT_EQ(resumed.state.step(), 3);
    EXPECT_TRUE(resumed.net->is_training());
    EXPECT_FALSE(resumed.net[1]->is_training());
    EXPECT_TRUE(resumed.net[2]->is_training());
  }
  const TemporaryFolder directory_;
};

TEST_F(EvaluationSaves, OfABestMetricKeepTheModesOfTheTraining) {
  CapturedLog log;
  {
    EvaluatingProgram program(directory_.path() / "run");
    program.train(3);
    program.net->eval();
    program.checkpointer->metric("accuracy", 0.5);
    program.checkpointer->save().wait();  // the machine goes now
  }
  EXPECT_THAT(log.text(), testing::HasSubstr("Make an EvaluationScope before eval()"));
  expect_modes_of_the_training();
}

TEST_F(EvaluationSaves, OfAStopKeepTheModesOfTheTraining) {
  EvaluatingProgram program(directory_.path() / "run");
  program.train(3);
  program.net->eval();
  program.checkpointer->request_stop("preempted");
  while (!program.checkpointer->tick()) {
  }
  EXPECT_EQ(program.checkpointer->finish(), 75);
  program.checkpointer.reset();
  expect_modes_of_the_training();
}

}}  // namespace holdfast::test
