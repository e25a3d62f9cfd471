// Lives of a fine-tuning whose checkpoints have its frozen weights by digest alone: what comes back, what is
// refused, and what is stored in time.
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/checkpoint/checkpointer.h"
#include "holdfast/state/train_state.h"
#include "support/captured_log.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

struct TunedNet : torch::nn::Module {
  TunedNet() {
    torch::manual_seed(7);
    trunk = register_module("trunk", torch::nn::Linear(256, 256));
    norm = register_module("norm", torch::nn::BatchNorm1d(256));
    head = register_module("head", torch::nn::Linear(256, 2));
  }
  at::Tensor loss() {
    const at::Tensor x = torch::rand({4, 256});
    return head->forward(norm->forward(trunk->forward(x))).square().mean();
  }
  torch::nn::Linear trunk{nullptr}, head{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};

// A life: it trains the head, and from step 4 on the trunk, too.
struct Tuning {
  explicit Tuning(const std::filesystem::path& directory,
                  const ModuleOptions& frozen = {.frozen = Frozen::digest},
                  CheckpointerOptions options = {.every = {SaveEvery::steps(1)}})
      : optimizer(net.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9)) {
    for (at::Tensor& parameter : net.trunk->parameters()) parameter.requires_grad_(false);
    state.add("model", net, frozen);
    state.add("optimizer", optimizer);
    options.directory = run = directory;
    options.notices.hear_signals = false;
    options.notices.cloud = false;
    options.keep = KeepLast{100};
    checkpointer = std::make_unique<Checkpointer>(state, options);
  }
  Resumed resume() { return checkpointer->resume(); }
  // An announced update leaves the save beside the next one.
  void step(bool announced = false) {
    optimizer.zero_grad();
    net.loss().backward();
    if (announced) checkpointer->before_update();
    optimizer.step();
    if (state.step() == 3) {
      for (at::Tensor& parameter : net.trunk->parameters()) parameter.requires_grad_(true);
    }
    const Decision decision = checkpointer->after_step({.applied = {{0, state.step() + 1}}});
    if (decision.saved && !announced) decision.save.wait();
  }
  // Of the checkpoint of that step; 0: there is none.
  std::uint64_t bytes_of(std::int64_t step) const {
    const std::string name = "step-00000000000" + std::to_string(step);
    for (const auto& entry : std::filesystem::directory_iterator(run)) {
      if (entry.path().filename().string().starts_with(name)) return entry.file_size();
    }
    return 0;
  }
  std::string digest() { return to_hex(checkpointer->state_digest()); }

  std::filesystem::path run;
  TunedNet net;
  torch::optim::SGD optimizer;
  TrainState state;
  std::unique_ptr<Checkpointer> checkpointer;
};

constexpr std::uint64_t kTrunk = 256 * 256 * 4;

class FrozenRun : public testing::TestWithParam<bool> {};

// With and without before_update(); a life ends before and after the trunk thaws.
TEST_P(FrozenRun, GoesOnBitForBitAndChangesSidesWhenItThaws) {
  const test::TemporaryFolder folder;
  Tuning straight(folder.path() / "straight");
  straight.resume();
  for (int step = 1; step <= 8; ++step) straight.step(GetParam());
  const std::string expected = straight.digest();
  EXPECT_EQ(straight.checkpointer->finish(), 0);
  for (int step = 1; step <= 8; ++step) {
    // A save beside a busy disk may be left out.
    const std::uint64_t bytes = straight.bytes_of(step);
    EXPECT_TRUE(bytes == 0 || (bytes > kTrunk) == (step >= 4)) << step << ": " << bytes;
  }
  EXPECT_GT(straight.bytes_of(8), kTrunk);
  const auto run = folder.path() / "run";
  for (int life = 0; life < 4; ++life) {
    Tuning tuning(run);
    EXPECT_EQ(tuning.resume().step, 2 * life);
    tuning.step(GetParam());
    tuning.step(GetParam());
    const std::string reached = tuning.digest();
    if (life == 3) {
      EXPECT_EQ(reached, expected);
    }
    EXPECT_EQ(tuning.checkpointer->finish(), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Saves, FrozenRun, testing::Bool());

TEST(FrozenRuns, AWrongBaseIsRefusedByNameWithTheRemedy) {
  const test::TemporaryFolder folder;
  const auto run = folder.path() / "run";
  {
    Tuning tuning(run);
    tuning.resume();
    tuning.step();
    EXPECT_EQ(tuning.checkpointer->finish(), 0);
  }
  Tuning other(run);
  other.net.trunk->bias.set_data(at::full({256}, 0.25));
  try {
    other.resume();
    ADD_FAILURE() << "other frozen weights were taken for the same";
  } catch (const RefusedError& error) {
    EXPECT_EQ(static_cast<int>(error.exit_code()), 78);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("model/trunk.bias has other bytes here"),
                                    HasSubstr("Load the same frozen weights before resume()"),
                                    Not(HasSubstr("more differ"))));
  }
  Tuning again(run);
  EXPECT_EQ(again.resume().step, 1);
}

TEST(FrozenRuns, AStateThatStoresTheTrunkGoesOnAsOneThatDoesNotAndBack) {
  const test::TemporaryFolder folder;
  const auto run = folder.path() / "run";
  const ModuleOptions options[] = {{}, {.frozen = Frozen::digest}, {}};
  for (int life = 0; life < 3; ++life) {
    Tuning tuning(run, options[life]);
    EXPECT_EQ(tuning.resume().step, life);
    tuning.step();
    EXPECT_EQ(tuning.bytes_of(life + 1) < kTrunk, life == 1);
    EXPECT_EQ(tuning.checkpointer->finish(), 0);
  }
}

TEST(FrozenRuns, AChangeThatNothingCountsIsFoundAndStoredAtTheEnd) {
  const test::TemporaryFolder folder;
  const auto run = folder.path() / "run";
  CapturedLog log;
  Tuning tuning(run, {.frozen = Frozen::digest}, {});
  tuning.resume();
  tuning.step();
  tuning.net.trunk->weight.data_ptr<float>()[1000] = 42;
  EXPECT_EQ(tuning.checkpointer->finish(), 0);
  EXPECT_THAT(log.text(), AllOf(HasSubstr("frozen tensors have changed in a way that nothing counts"),
                                HasSubstr("model/trunk.weight"), Not(HasSubstr("model/trunk.bias"))));
  Tuning next(run);
  EXPECT_EQ(next.resume().step, 1);
  EXPECT_EQ(next.net.trunk->weight.data_ptr<float>()[1000], 42);
}

TEST(FrozenRuns, ADigestOfTheStateSeesWhatNothingCounts) {
  const test::TemporaryFolder folder;
  Tuning tuning(folder.path() / "run");
  tuning.resume();
  tuning.step();
  const std::string before = tuning.digest();
  EXPECT_EQ(tuning.digest(), before);
  CapturedLog log;
  tuning.net.trunk->bias.data_ptr<float>()[0] += 1;
  EXPECT_NE(tuning.digest(), before);
  EXPECT_THAT(log.text(), HasSubstr("model/trunk.bias"));
}

// The next start has its own weights before it resumes, and not those of the file.
TEST(FrozenRuns, WeightsThatHoldfastLoadsAreStored) {
  const test::TemporaryFolder folder;
  {
    Tuning pretraining(folder.path() / "pretraining", {});
    pretraining.net.trunk->weight.set_data(at::full({256, 256}, 0.125));
    pretraining.resume();
    pretraining.step();
    EXPECT_EQ(pretraining.checkpointer->finish(), 0);
  }
  CheckpointerOptions options{.every = {SaveEvery::steps(1)}};
  for (const auto& entry : std::filesystem::directory_iterator(folder.path() / "pretraining")) {
    if (entry.path().extension() == ".h5") options.start.init_from = entry.path();
  }
  const auto run = folder.path() / "run";
  CapturedLog log;
  {
    Tuning tuning(run, {.frozen = Frozen::digest}, options);
    tuning.resume();
    tuning.step();
    EXPECT_GT(tuning.bytes_of(1), kTrunk);
    EXPECT_EQ(tuning.checkpointer->finish(), 0);
  }
  EXPECT_THAT(log.text(),
              AllOf(HasSubstr("frozen tensors that are stored"), HasSubstr("model/trunk.weight")));
  Tuning next(run);
  EXPECT_EQ(next.resume().step, 1);
  EXPECT_EQ(next.net.trunk->weight[3][3].item<float>(), 0.125F);
}

}}  // namespace holdfast::test
