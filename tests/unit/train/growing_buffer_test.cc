// A tensor of a module that gets another shape while it trains. A program that starts again makes it as this
// one did, so no checkpoint of the new shape could be resumed: the save says so, not the resume.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <filesystem>
#include <memory>
#include <string>

#include "holdfast/checkpoint/checkpointer.h"
#include "holdfast/state/train_state.h"
#include "support/subprocess.h"

namespace holdfast { namespace {

using testing::HasSubstr;

struct Remembering : torch::nn::Module {
  Remembering() {
    torch::manual_seed(3);
    layer = register_module("layer", torch::nn::Linear(2, 1));
    seen = register_buffer("seen", at::zeros({3}));
  }
  torch::nn::Linear layer{nullptr};
  at::Tensor seen;
};

struct Program {
  explicit Program(const std::filesystem::path& directory)
      : optimizer(net.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9)) {
    state.add("model", net);
    state.add("optimizer", optimizer);
    checkpointer =
        std::make_unique<Checkpointer>(state, CheckpointerOptions{.directory = directory,
                                                                  .every = {SaveEvery::steps(1)},
                                                                  .notices = {.hear_signals = false}});
    resumed = checkpointer->resume();
  }
  Decision step() {
    optimizer.zero_grad();
    net.layer->forward(at::ones({1, 2})).sum().backward();
    optimizer.step();
    const Decision decision = checkpointer->after_step();
    checkpointer->save().wait();
    return decision;
  }

  Remembering net;
  torch::optim::SGD optimizer;
  TrainState state;
  std::unique_ptr<Checkpointer> checkpointer;
  Resumed resumed;
};

TEST(GrowingBuffer, IsRefusedAtTheSaveByName) {
  const test::TemporaryFolder folder;
  {
    Program first(folder.path() / "run");
    first.step();
    first.step();
    first.net.seen.resize_({5});
    testing::internal::CaptureStderr();
    first.step();
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_THAT(said, HasSubstr("model/seen is float32 [5]"));
    EXPECT_THAT(said, HasSubstr("float32 [3]"));
    const Decision decision = first.step();
    ASSERT_TRUE(decision.failure);
    EXPECT_THAT(*decision.failure, HasSubstr("model/seen"));
    EXPECT_EQ(first.checkpointer->last_durable().step, 2);
    EXPECT_EQ(first.checkpointer->finish(), 74);
  }
  Program second(folder.path() / "run");
  EXPECT_EQ(second.resumed.step, 2);
  EXPECT_EQ(second.checkpointer->finish(), 0);
}

TEST(GrowingBuffer, ThatHasItsOldShapeAgainIsSaved) {
  const test::TemporaryFolder folder;
  Program program(folder.path() / "run");
  program.step();
  program.net.seen.resize_({5});
  program.step();
  program.net.seen.resize_({3});
  program.step();
  EXPECT_EQ(program.checkpointer->last_durable().step, 3);
  EXPECT_EQ(program.checkpointer->finish(), 0);
}

}}  // namespace holdfast
