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
#include <optional>
#include <string>

#include "holdfast/checkpoint/checkpointer.h"
#include "holdfast/optim/ema.h"
#include "holdfast/state/train_state.h"
#include "support/captured_log.h"
#include "support/soon.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

struct EvaluatingProgram {
  explicit EvaluatingProgram(const std::filesystem::path& directory, bool adds_ema = false)
      : net(torch::nn::Linear(4, 4), torch::nn::BatchNorm1d(4), torch::nn::Dropout(0.5)),
        sgd(net->parameters(), torch::optim::SGDOptions(0.1)),
        ema(*net, {.decay = 0.9}) {
    net[1]->as<torch::nn::BatchNorm1d>()->eval();  // frozen statistics
    state.add("model", *net);
    state.add("optimizer", sgd);
    if (adds_ema) state.add("ema", ema);
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
      ema.update();
      checkpointer->after_step({.applied = {{0, state.step() + 1}}});
    }
  }
  at::Tensor weight() { return net[0]->as<torch::nn::Linear>()->weight; }
  torch::nn::Sequential net;
  torch::optim::SGD sgd;
  Ema ema;
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

enum class Saver { scope, metric, save, finish };

// Swapped in before the scope, too. The Ema is added to the state, or is for evaluations alone.
TEST_F(EvaluationSaves, HaveTheWeightsAndNotTheAveragesThatAreSwappedIn) {
  for (const bool added : {false, true}) {
    for (const Saver saver : {Saver::scope, Saver::metric, Saver::save, Saver::finish}) {
      const TemporaryFolder folder;
      at::Tensor weight, average;
      {
        EvaluatingProgram program(folder.path() / "run", added);
        program.train(3);
        weight = program.weight().detach().clone();
        Checkpointer& checkpointer = *program.checkpointer;
        const auto averaged = program.ema.swap_in();
        average = program.weight().detach().clone();
        ASSERT_FALSE(at::equal(weight, average));
        std::optional<Checkpointer::EvaluationScope> scope;
        if (saver == Saver::metric) checkpointer.metric("accuracy", 0.5);
        if (saver == Saver::save) checkpointer.save();
        if (saver == Saver::scope) scope.emplace(checkpointer);
        if (saver == Saver::scope || saver == Saver::finish) {
          checkpointer.request_stop("preempted");
          while (!checkpointer.tick()) {
          }
        }
        if (saver == Saver::finish) {
          EXPECT_EQ(checkpointer.finish(), 75);
        } else {
          ASSERT_TRUE(soon([&] { return checkpointer.last_durable().step == 3; }));
        }
      }
      EvaluatingProgram resumed(folder.path() / "run", added);
      EXPECT_EQ(resumed.state.step(), 3);
      EXPECT_TRUE(at::equal(resumed.weight(), weight)) << added << static_cast<int>(saver);
      if (!added) continue;
      const auto averaged = resumed.ema.swap_in();
      EXPECT_TRUE(at::equal(resumed.weight(), average)) << static_cast<int>(saver);
    }
  }
}

}}  // namespace holdfast::test
