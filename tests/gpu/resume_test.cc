// Bit-exact resume on a real device, with deterministic kernels, in every precision that it has. Without a
// GPU every test is skipped and says so.
#include <ATen/Context.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <c10/cuda/CUDAFunctions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "holdfast/checkpoint/checkpointer.h"
#include "holdfast/optim/fused_sgd.h"
#include "holdfast/precision/grad_scaler.h"
#include "holdfast/snapshot/digest.h"
#include "holdfast/state/train_state.h"
#include "holdfast/train/step.h"
#include "support/subprocess.h"
#include "unit/state/staging.h"

namespace holdfast { namespace {

// One process's life. Pictures come from the device's generator, dropout too.
struct Life {
  Life(Precision precision, bool graph, const std::filesystem::path& directory)
      : net(make_net()), optimizer(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9)) {
    set_math_mode(precision);
    if (needs_scaler(precision)) scaler = std::make_unique<GradScaler>(at::Device(at::kCUDA));
    StepOptions options{.precision = precision, .scaler = scaler.get()};
    options.graph = graph;
    step = std::make_unique<Step>(
        optimizer,
        [this](const Batch& batch) {
          return torch::nn::functional::cross_entropy(net->forward(batch.inputs), batch.targets);
        },
        options);
    state.add("model", *net);
    state.add("optimizer", optimizer);
    if (scaler) state.add("scaler", *scaler);
    checkpointer = std::make_unique<Checkpointer>(
        state, CheckpointerOptions{.directory = directory, .every = {}, .notices = {.cloud = false}});
    checkpointer->resume();
  }

  void train_to(std::int64_t last) {
    while (state.step() < last) {
      Batch batch;
      batch.inputs = at::randn({16, 3, 16, 16}, at::kCUDA);
      batch.targets = at::randint(10, {16}, at::TensorOptions(at::kLong).device(at::kCUDA));
      const auto result = step->run(batch);
      ASSERT_TRUE(result.has_value());
      checkpointer->after_step({.loss = result->loss, .skipped = result->skipped});
    }
  }
  std::string end() {
    EXPECT_EQ(checkpointer->finish(), 0);
    return to_hex(checkpointer->state_digest());
  }

  static torch::nn::Sequential make_net() {
    torch::manual_seed(7);
    torch::nn::Sequential net(
        torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 32, 3).padding(1).bias(false)),
        torch::nn::BatchNorm2d(32), torch::nn::Conv2d(torch::nn::Conv2dOptions(32, 32, 3).padding(1)),
        torch::nn::Dropout(0.3), torch::nn::Flatten(), torch::nn::Linear(32 * 16 * 16, 10));
    net->to(at::kCUDA);
    return net;
  }

  torch::nn::Sequential net;
  FusedSgd optimizer;
  std::unique_ptr<GradScaler> scaler;
  std::unique_ptr<Step> step;
  TrainState state;
  std::unique_ptr<Checkpointer> checkpointer;
};

TEST(ResumeOnCuda, HasTheBitsOfARunThatWasNotInterrupted) {
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  if (c10::cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device here";
  at::globalContext().setDeterministicCuDNN(true);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  for (const Precision precision : supported_on(traits_of(at::Device(at::kCUDA)))) {
    for (const bool graph : {false, true}) {
      SCOPED_TRACE(std::string(word_of(precision)) + (graph ? ", graphs" : ""));
      const test::TemporaryFolder folder;
      Life whole(precision, graph, folder.path() / "whole");
      whole.train_to(12);
      const std::string expected = whole.end();
      {
        Life first(precision, graph, folder.path() / "cut");
        first.train_to(7);
        first.end();
      }
      Life second(precision, graph, folder.path() / "cut");
      EXPECT_EQ(second.state.step(), 7);
      second.train_to(12);
      EXPECT_EQ(second.end(), expected);
    }
  }
  set_math_mode(Precision::fp32);
  at::globalContext().setDeterministicAlgorithms(false, false);
}

// A rank that trained on the second GPU of its machine may go on with the first of another.
TEST(ResumeOnCuda, DrawsOnWhereItTrainsWhicheverGpuThatIs) {
  const auto gpus = c10::cuda::device_count();
  if (gpus == 0) GTEST_SKIP() << "no CUDA device here";
  const at::Device before(at::kCUDA, static_cast<c10::DeviceIndex>(gpus - 1));
  const at::Device after(at::kCUDA, 0);
  torch::nn::Linear net(4, 4);
  net->to(before);
  TrainState state;
  state.add("model", *net);
  EXPECT_THAT(test::names_of(state), testing::IsSupersetOf({"rng/cpu", "rng/gpu.0"}));
  EXPECT_THAT(test::names_of(state), testing::Not(testing::Contains("rng/gpu.1"))) << "it never draws there";
  at::randn({8}, before);
  const auto snapshot = test::stage(state);
  const at::Tensor expected = at::randn({8}, before).cpu();
  torch::nn::Linear other(4, 4);
  other->to(after);
  TrainState resumed;
  resumed.add("model", *other);
  resumed.load(*snapshot, {});
  EXPECT_TRUE(at::randn({8}, after).cpu().equal(expected));
}

// A start would have it on the CPU when it loads, and would not bring back the GPU's random numbers.
TEST(ResumeOnCuda, AModuleThatComesAfterResumeIsRefused) {
  if (c10::cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device here";
  const test::TemporaryFolder folder;
  torch::nn::Linear net(4, 4);
  TrainState state;
  state.add("model", *net);
  Checkpointer checkpointer(state, {.directory = folder.path() / "run", .notices = {.hear_signals = false}});
  checkpointer.resume();
  net->to(at::kCUDA);
  try {
    checkpointer.after_step();
    ADD_FAILURE() << "it is saved";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("model/weight is on cuda:0, where nothing was"));
  }
}

}}  // namespace holdfast
