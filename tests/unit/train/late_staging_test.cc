// Staging beside the next step, with real modules and optimizers: whatever a loop does between after_step and
// before_update, every file that is committed holds, bit for bit, the state of its step boundary.
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros_like.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <functional>
#include <map>
#include <utility>

#include "holdfast/state/train_state.h"
#include "holdfast/store/names.h"
#include "holdfast/writing/file_verifier.h"
#include "unit/checkpoint/rig.h"
#include "unit/state/staging.h"

namespace holdfast::test { namespace {

using testing::HasSubstr;
using torch::optim::SGD;
using torch::optim::SGDOptions;

// Buffers that forward changes, a channels_last weight, a bias.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    conv->weight.set_data(conv->weight.detach().contiguous(at::MemoryFormat::ChannelsLast));
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("head", head);
  }
  at::Tensor forward(const at::Tensor& pictures) {
    return head->forward(norm->forward(conv->forward(pictures)).flatten(1));
  }
  torch::nn::Conv2d conv{torch::nn::Conv2dOptions(3, 8, 3)};
  torch::nn::BatchNorm2d norm{8};
  torch::nn::Linear head{8 * 4 * 4, 5};
};
TORCH_MODULE(Net);

// Saves at every step, and remembers what each boundary looked like.
class LateLoop : public ::testing::Test {
 protected:
  void SetUp() override { torch::manual_seed(7); }

  void begin() {
    CheckpointerOptions options = volume_.options({SaveEvery::steps(1)});
    options.keep = KeepLast{1000};
    checkpointer_.emplace(state, options);
    checkpointer_->resume();
  }
  // Forward, backward, and what this loop does more before its update.
  void compute(const std::function<void()>& meanwhile = [] {}) {
    optimizer_->zero_grad();
    net->forward(at::rand({4, 3, 6, 6}).to(net->head->weight.scalar_type())).square().mean().backward();
    meanwhile();
  }
  void update(const std::function<void()>& step) {
    announce();
    step();
    boundary();
  }
  void update() {
    update([&] { optimizer_->step(); });
  }
  // Closes what is open; its file is there afterwards, unless the snapshot was found to have changed.
  void announce() {
    checkpointer_->before_update();
    if (!std::exchange(open_, false) || std::exchange(changes_, false)) return;
    EXPECT_EQ(checkpointer_->save().wait(), SaveStatus::durable);  // that very one
  }
  void boundary() {
    open_ = checkpointer_->after_step({.loss = 1}).saved;
    boundaries_[state.step()] = digest(state);
  }
  // Every file is compared with its boundary. Returns how many there are.
  int finish() {
    EXPECT_EQ(checkpointer_->finish(), 0);
    int compared = 0;
    for (const std::string& name : volume_.checkpoints()) {
      const auto file = volume_.disk.open_file(volume_.path(name), OpenMode::read);
      FileVerifier reader(1);
      const auto loaded = reader.load(*file);
      const auto* const good = std::get_if<FileVerifier::Loaded>(&loaded);
      EXPECT_NE(good, nullptr) << name;
      if (good == nullptr) continue;
      EXPECT_EQ(digest(*good->snapshot), boundaries_.at(good->index.step)) << name;
      ++compared;
    }
    return compared;
  }

  Net net;
  std::unique_ptr<torch::optim::Optimizer> optimizer_ =
      std::make_unique<SGD>(net->parameters(), SGDOptions(0.1).momentum(0.9));
  TrainState state;
  std::optional<Checkpointer> checkpointer_;
  bool changes_ = false;  // this loop changes what should stand still: its first save is made again

 private:
  Volume volume_;
  bool open_ = false;
  std::map<std::int64_t, std::string> boundaries_;
};

TEST_F(LateLoop, ForwardChangesBuffersAndRandomNumbers) {
  state.add("model", *net);
  state.add("optimizer", *optimizer_);
  begin();
  for (int i = 0; i < 5; ++i) {
    compute([] { at::rand({100}); });
    update();
  }
  EXPECT_EQ(finish(), 5);
}

TEST_F(LateLoop, GradientsAreAccumulated) {
  state.add("model", *net);
  state.add("optimizer", *optimizer_);
  begin();
  for (int i = 0; i < 4; ++i) {
    compute([&] {
      for (int micro = 0; micro < 3; ++micro) net->forward(at::rand({4, 3, 6, 6})).sum().backward();
    });
    update();
  }
  EXPECT_EQ(finish(), 4);
}

// An average is no trained parameter: it may change whenever the loop likes.
TEST_F(LateLoop, AnAverageFollowsTheUpdate) {
  Net average;
  state.add("model", *net);
  state.add("average", *average);
  state.add("optimizer", *optimizer_);
  const auto follow = [&] {
    const torch::NoGradGuard no_grad;
    const auto own = net->parameters();
    const auto averaged = average->parameters();
    for (std::size_t i = 0; i < own.size(); ++i) averaged[i].lerp_(own[i], 0.1);
  };
  begin();
  for (int i = 0; i < 4; ++i) {
    compute(i % 2 == 0 ? std::function<void()>(follow) : [] {});  // after the boundary
    update([&] {
      optimizer_->step();
      follow();  // before it
    });
  }
  EXPECT_EQ(finish(), 4);
}

TEST_F(LateLoop, WeightsAreClippedInsideTheUpdate) {
  state.add("model", *net);
  state.add("optimizer", *optimizer_);
  begin();
  for (int i = 0; i < 4; ++i) {
    compute();
    update([&] {
      optimizer_->step();
      const torch::NoGradGuard no_grad;
      for (const at::Tensor& parameter : net->parameters()) parameter.clamp_(-0.2, 0.2);
    });
  }
  EXPECT_EQ(finish(), 4);
}

TEST_F(LateLoop, WeightsThatAreClippedAfterTheBoundaryAreNamed) {
  state.add("model", *net);
  state.add("optimizer", *optimizer_);
  changes_ = true;
  CapturedLog log;
  begin();
  for (int i = 0; i < 6; ++i) {
    compute();
    update();
    if (i == 5) break;  // finish() commits what is there then
    const torch::NoGradGuard no_grad;
    net->head->weight.mul_(0.99);
  }
  EXPECT_EQ(finish(), 5);
  EXPECT_THAT(log.text(), HasSubstr("model/head.weight changed between after_step and before_update"));
}

TEST_F(LateLoop, ABatchIsSkipped) {
  state.add("model", *net);
  state.add("optimizer", *optimizer_);
  begin();
  for (int i = 0; i < 6; ++i) {
    compute();
    if (i % 3 == 1) continue;  // not even announced
    if (i % 3 == 2) {
      announce();  // announced, and then the gradients were found to be infinite
      continue;
    }
    update();
  }
  compute();
  update();
  EXPECT_EQ(finish(), 3);
}

TEST_F(LateLoop, TheModuleIsCastForAWhile) {
  state.add("model", *net);
  state.add("optimizer", *optimizer_);
  begin();
  for (const c10::ScalarType type : {at::kFloat, at::kDouble, at::kDouble, at::kFloat, at::kFloat}) {
    net->head->to(type);  // after the boundary
    net->head->to(at::kFloat);
    compute();
    update();
  }
  EXPECT_EQ(finish(), 5);
}

TEST_F(LateLoop, SlotsAreDropped) {
  optimizer_ = std::make_unique<torch::optim::AdamW>(net->parameters(), torch::optim::AdamWOptions(0.01));
  state.add("model", *net);
  state.add("optimizer", *optimizer_);
  begin();
  for (int i = 0; i < 5; ++i) {
    compute([&] {
      if (i == 3) optimizer_->state().clear();  // begun again, with the snapshot open
    });
    update();
  }
  EXPECT_EQ(finish(), 5);
}

TEST_F(LateLoop, AGroupJoinsForAWhile) {
  optimizer_ = std::make_unique<SGD>(net->head->parameters(), SGDOptions(0.1).momentum(0.9));
  state.add("model", *net);
  state.add("optimizer", *optimizer_);
  begin();
  for (int i = 0; i < 5; ++i) {
    compute([&] {
      if (i == 2) optimizer_->add_param_group(torch::optim::OptimizerParamGroup(net->conv->parameters()));
    });
    update([&] {
      optimizer_->step();
      if (i == 2) optimizer_->param_groups().pop_back();  // no start would make it
    });
  }
  EXPECT_EQ(finish(), 5);
}

TEST_F(LateLoop, LbfgsStepsManyTimesInOne) {
  net->conv->weight.set_data(net->conv->weight.detach().contiguous());  // it takes no other gradients
  optimizer_ = std::make_unique<torch::optim::LBFGS>(
      net->parameters(), torch::optim::LBFGSOptions(0.1).max_iter(4).history_size(3));
  state.add("model", *net);
  state.add("optimizer", *optimizer_);
  begin();
  for (int i = 0; i < 5; ++i) {
    const at::Tensor pictures = at::rand({4, 3, 6, 6});
    net->forward(pictures);
    update([&] {
      optimizer_->step([&] {
        optimizer_->zero_grad();
        at::Tensor loss = net->forward(pictures).square().mean();
        loss.backward();
        return loss;
      });
    });
  }
  EXPECT_EQ(finish(), 5);
}

// The update happens in hooks of backward, long before anybody announces one.
TEST_F(LateLoop, TheOptimizerStepsInsideBackward) {
  for (const at::Tensor& parameter : net->parameters()) {
    parameter.register_hook([parameter](const at::Tensor& gradient) {
      const torch::NoGradGuard no_grad;
      at::Tensor(parameter).add_(gradient, -0.1);
    });
  }
  state.add("model", *net);
  state.add("optimizer", *optimizer_);
  changes_ = true;
  CapturedLog log;
  begin();
  for (int i = 0; i < 8; ++i) {
    compute();
    update([] {});
  }
  EXPECT_EQ(finish(), 7);
  EXPECT_THAT(log.text(), HasSubstr("an optimizer that steps inside backward?"));
}

// Averaged weights take the place of the trained ones for a while, by their storages.
TEST_F(LateLoop, WeightsAreSwapped) {
  state.add("model", *net);
  state.add("optimizer", *optimizer_);
  begin();
  for (int i = 0; i < 4; ++i) {
    compute([&] {
      std::vector<at::Tensor> own;
      for (at::Tensor& parameter : net->parameters()) {
        own.push_back(parameter.detach());
        parameter.set_data(at::zeros_like(own.back()));
      }
      const torch::NoGradGuard no_grad;
      net->forward(at::rand({4, 3, 6, 6}));
      std::size_t next = 0;
      for (at::Tensor& parameter : net->parameters()) parameter.set_data(own[next++]);
    });
    update();
  }
  EXPECT_EQ(finish(), 4);
}

TEST_F(LateLoop, WeightsAreSwappedInPlaceForAnEvaluation) {
  state.add("model", *net);
  state.add("optimizer", *optimizer_);
  begin();
  for (int i = 0; i < 4; ++i) {
    compute();
    update();
    if (i == 3) break;  // finish() commits what the evaluation left
    const Checkpointer::EvaluationScope scope(*checkpointer_);
    const torch::NoGradGuard no_grad;
    net->eval();
    std::vector<at::Tensor> own;
    for (const at::Tensor& parameter : net->parameters()) own.push_back(parameter.clone());
    for (const at::Tensor& parameter : net->parameters()) parameter.zero_();
    net->forward(at::rand({4, 3, 6, 6}));
    std::size_t next = 0;
    for (const at::Tensor& parameter : net->parameters()) parameter.copy_(own[next++]);
    net->train();
  }
  EXPECT_EQ(finish(), 4);
}

// Nothing of an earlier save is believed about a later one.
TEST_F(LateLoop, TheStateIsLookedAtAnewEachTime) {
  state.add("model", *net);
  state.add("optimizer", *optimizer_);
  begin();
  const std::vector<std::function<void()>> changes = {
      [] {},
      [&] { net->conv->weight.set_data(net->conv->weight.detach().contiguous()); },  // other strides
      [&] { net->head->bias.set_requires_grad(false); },
      [&] { optimizer_->state().clear(); },
      [&] { net->norm->eval(); },
      [&] { static_cast<SGDOptions&>(optimizer_->param_groups()[0].options()).lr(0.01); },
  };
  for (const auto& change : changes) {
    compute();
    update([&] {
      optimizer_->step();
      change();
    });
  }
  EXPECT_EQ(finish(), static_cast<int>(changes.size()));
}

}}  // namespace holdfast::test
