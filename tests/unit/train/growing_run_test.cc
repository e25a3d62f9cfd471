// Lives of a run whose parameters grow, or whose optimizer gets groups: alone, and as several ranks.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/utils.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/checkpoint/checkpointer.h"
#include "holdfast/state/train_state.h"
#include "support/captured_log.h"
#include "support/memory_world.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

using testing::HasSubstr;
using torch::optim::Adam;
using torch::optim::AdamOptions;
using torch::optim::AdamParamState;

struct GrowingNet final : torch::nn::Module {
  explicit GrowingNet(std::int64_t rows) { means = register_parameter("means", at::full({rows, 3}, 0.5)); }
  void replace(const at::Tensor& tensor) { parameters_["means"] = means = tensor; }
  at::Tensor means;
};

// Grows by a row before the update of every third step, between after_step() and before_update().
struct GrowingProgram {
  explicit GrowingProgram(const std::filesystem::path& directory, CheckpointerOptions options = {},
                          RankChannel* channel = nullptr)
      : adam({net.means}, AdamOptions(0.01)) {
    state.add("net", net, {.may_change_shape = true});
    state.add("adam", adam);
    options.directory = directory;
    options.ranks.channel = channel;
    options.notices.hear_signals = false;
    options.notices.cloud = false;
    checkpointer = std::make_unique<Checkpointer>(state, options);
  }
  Decision step() {
    adam.zero_grad();
    (net.means.sin() * net.means.size(0)).sum().backward();
    if (state.step() % 3 == 2) grow();
    checkpointer->before_update();
    adam.step();
    const Decision decision = checkpointer->after_step({.applied = {{0, state.step() + 1}}});
    if (decision.saved) decision.save.wait();
    return decision;
  }
  // The gradient of the old rows is lost, as in programs that grow like this.
  void grow() {
    const at::NoGradGuard no_grad;
    const auto longer = [](const at::Tensor& tensor, double value) {
      return at::cat({tensor.detach(), at::full({1, 3}, value)});
    };
    const at::Tensor next = longer(net.means, 0.25).requires_grad_();
    auto& states = adam.state();
    auto moments = std::make_unique<AdamParamState>(
        static_cast<AdamParamState&>(*states.at(net.means.unsafeGetTensorImpl())));
    moments->exp_avg(longer(moments->exp_avg(), 0));
    moments->exp_avg_sq(longer(moments->exp_avg_sq(), 0));
    states.erase(net.means.unsafeGetTensorImpl());
    states[next.unsafeGetTensorImpl()] = std::move(moments);
    adam.param_groups()[0].params()[0] = next;
    net.replace(next);
  }
  void train_to(std::int64_t last) {
    while (state.step() < last) step();
  }
  std::string digest() { return to_hex(checkpointer->state_digest()); }

  GrowingNet net{2};
  Adam adam;
  TrainState state;
  std::unique_ptr<Checkpointer> checkpointer;
};

class GrowingRun : public testing::Test {
 protected:
  std::string uninterrupted(std::int64_t steps) {
    const TemporaryFolder other;
    GrowingProgram program(other.path() / "run");
    program.checkpointer->resume();
    program.train_to(steps);
    return program.digest();
  }
  TemporaryFolder directory;
  CheckpointerOptions each_step{.every = {SaveEvery::steps(1)}};
};

// A life ends without finish(), as if killed: its last saves may not have got to the disk.
TEST_F(GrowingRun, EveryLifeGoesOnBitByBit) {
  for (int number = 0; number < 4; ++number) {
    GrowingProgram life(directory.path() / "run", each_step);
    const auto peeked = life.checkpointer->peek();
    ASSERT_EQ(peeked.has_value(), number > 0);
    const Resumed resumed = life.checkpointer->resume();
    if (peeked) {
      EXPECT_EQ(peeked->step, resumed.step);
      EXPECT_EQ(peeked->checkpoint, resumed.checkpoint);
      EXPECT_EQ(peeked->tensor("net/means")->shape, life.net.means.sizes().vec());
      EXPECT_EQ(peeked->groups("adam"), 1);
      EXPECT_TRUE(peeked->has_part("net"));
      EXPECT_EQ(peeked->options.get_double("adam.group.0.lr"), 0.01);
    }
    // A step is much shorter than a commit.
    while (life.checkpointer->last_durable().step < resumed.step + 4) life.step();
    EXPECT_EQ(life.digest(), uninterrupted(life.state.step()));
  }
}

TEST_F(GrowingRun, PeekTellsTheEpoch) {
  {
    GrowingProgram life(directory.path() / "run", each_step);
    life.checkpointer->resume();
    life.adam.zero_grad();
    life.net.means.sum().backward();
    life.adam.step();
    life.checkpointer->after_step({.applied = {{7, 3}}}).save.wait();
  }
  GrowingProgram next(directory.path() / "run");
  EXPECT_EQ(next.checkpointer->peek()->epoch, 7);
}

TEST_F(GrowingRun, RanksThatWriteTogetherGrowTogether) {
  CapturedLog log;
  const auto live = [&](std::int64_t from, std::int64_t to) {
    MemoryWorld world(2);
    std::vector<std::string> digests(2);
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      ranks.emplace_back([&, rank] {
        try {
          CheckpointerOptions options{.every = {SaveEvery::steps(2)}};
          GrowingProgram life(directory.path() / "run", options, &world.rank(rank));
          const auto peeked = life.checkpointer->peek();
          EXPECT_EQ(peeked ? peeked->step : 0, from);
          EXPECT_EQ(life.checkpointer->resume().step, from);
          life.train_to(to);
          digests[static_cast<std::size_t>(rank)] = life.digest();
          EXPECT_EQ(life.checkpointer->finish(), 0);
        } catch (const std::exception& error) {
          ADD_FAILURE() << "rank " << rank << ": " << error.what();
          world.lose(rank);
        }
      });
    }
    for (std::thread& rank : ranks) rank.join();
    EXPECT_EQ(digests[0], digests[1]);
    EXPECT_EQ(digests[0], uninterrupted(to));
  };
  live(0, 10);
  live(10, 20);
  // A save of a step whose rows are new since the vote fails, and the next vote makes it again.
  EXPECT_THAT(log.text(), HasSubstr("2 of 2 ranks write each checkpoint"));
}

// Trains the head; from step 4 on the trunk as well, in a group that the loop appends.
struct UnfreezingProgram {
  explicit UnfreezingProgram(const std::filesystem::path& directory, CheckpointerOptions options)
      : adam(head->parameters(), AdamOptions(0.1)) {
    const at::NoGradGuard no_grad;
    for (const at::Tensor& parameter : trunk->parameters()) parameter.fill_(0.3);
    for (const at::Tensor& parameter : head->parameters()) parameter.fill_(0.2);
    state.add("head", *head);
    state.add("trunk", *trunk);
    state.add("adam", adam, {.may_append_groups = true});
    options.directory = directory;
    options.notices.hear_signals = false;
    options.notices.cloud = false;
    checkpointer = std::make_unique<Checkpointer>(state, options);
    checkpointer->resume();
  }
  void train_to(std::int64_t last) {
    while (state.step() < last) {
      if (state.step() == 4 && adam.param_groups().size() == 1) {
        adam.add_param_group(torch::optim::OptimizerParamGroup(
            trunk->parameters(), std::make_unique<AdamOptions>(AdamOptions(0.01))));
      }
      adam.zero_grad();
      head->forward(trunk->forward(at::ones({2, 3}))).square().sum().backward();
      checkpointer->before_update();
      adam.step();
      const Decision decision = checkpointer->after_step({.applied = {{0, state.step() + 1}}});
      if (decision.saved) decision.save.wait();
    }
  }
  std::string digest() { return to_hex(checkpointer->state_digest()); }

  torch::nn::Linear trunk{3, 4}, head{4, 2};
  Adam adam;
  TrainState state;
  std::unique_ptr<Checkpointer> checkpointer;
};

TEST_F(GrowingRun, AGroupThatTheLoopAppendsComesBack) {
  const TemporaryFolder other;
  UnfreezingProgram straight(other.path() / "run", {});
  for (std::int64_t step = 0; step < 9; step += 3) {
    UnfreezingProgram life(directory.path() / "run", each_step);
    EXPECT_EQ(life.state.step(), step);
    EXPECT_EQ(life.adam.param_groups().size(), step > 4 ? 2U : 1U);
    life.train_to(step + 3);
    straight.train_to(step + 3);
    EXPECT_EQ(life.digest(), straight.digest());
    EXPECT_EQ(life.checkpointer->finish(), 0);
  }
}

}}  // namespace holdfast::test
