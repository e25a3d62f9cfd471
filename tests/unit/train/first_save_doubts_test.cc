// What the first save of a program warns of: each thing that was probably forgotten is named once, and a program
// that forgot nothing hears nothing.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <torch/data/dataloader.h>
#include <torch/data/datasets/base.h>
#include <torch/data/datasets/map.h>
#include <torch/data/transforms/stack.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <functional>
#include <random>
#include <string>

#include "holdfast/base/log.h"
#include "holdfast/checkpoint/checkpointer.h"
#include "holdfast/data/torch_sampler.h"
#include "holdfast/optim/ema.h"
#include "holdfast/optim/schedule.h"
#include "holdfast/state/train_state.h"
#include "support/captured_log.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct WordIndices : torch::data::datasets::Dataset<WordIndices> {
  torch::data::Example<> get(std::size_t index) override {
    return {at::full({}, static_cast<std::int64_t>(index % 8), at::kLong), at::zeros({1})};
  }
  std::optional<std::size_t> size() const override { return 64; }
};

struct WordNet : torch::nn::Module {
  torch::nn::Embedding words{register_module("words", torch::nn::Embedding(8, 6))};
  torch::nn::BatchNorm1d norm{register_module("norm", torch::nn::BatchNorm1d(6))};
  torch::nn::Dropout dropout{register_module("dropout", torch::nn::Dropout(0.2))};
  torch::nn::Linear unused{nullptr};
  at::Tensor seen{register_buffer("seen", at::zeros({6}))};
  at::Tensor forward(const at::Tensor& input) {
    const at::Tensor x = dropout->forward(norm->forward(words->forward(input)));
    return x + seen;
  }
};

// What the trainer leaves out or does wrong.
struct Mistakes {
  bool no_second_optimizer = false;
  bool orphan = false;
  bool no_data = false;
  bool no_generator = false;
  bool reassigns = false;
  bool clears_gradients = false;  // no mistake: after the update instead of before the next one
  bool reports_applied = false;   // no mistake: instead of a component
  bool announces = false;         // no mistake: saves are copied beside the next step
};

class FirstSave : public ::testing::Test {
 protected:
  void SetUp() override { set_log_level(LogLevel::warning); }
  void TearDown() override { set_log_level(LogLevel::info); }

  // The log of a program that trains three steps and saves after the second and the third.
  std::string log_of(const Mistakes& mistakes) {
    const TemporaryFolder folder;
    torch::manual_seed(3);
    WordNet net;
    torch::nn::Linear second(6, 1), average(6, 1);
    if (mistakes.orphan) net.unused = net.register_module("unused", torch::nn::Linear(3, 3));
    torch::optim::Adam optimizer(net.parameters(), torch::optim::AdamOptions(1e-2));
    torch::optim::SGD second_optimizer(second->parameters(), torch::optim::SGDOptions(1e-2));
    at::Generator noise = at::make_generator<at::CPUGeneratorImpl>(11);
    EpochOrder order(64, 5);
    double best = 0;
    auto loader = torch::data::make_data_loader(WordIndices().map(torch::data::transforms::Stack<>()),
                                                TorchSampler(order), 8);
    Schedule schedule(optimizer, RatePlan::constant());
    TrainState state;
    state.add("net", net);
    state.add("second", *second);
    state.add("average", *average);
    state.add("optimizer", optimizer);
    if (!mistakes.no_second_optimizer) state.add("second_optimizer", second_optimizer);
    if (!mistakes.no_generator) state.add_generator("noise", noise);
    if (!mistakes.no_data && !mistakes.reports_applied) state.add("data", order);
    state.add("schedule", schedule);
    state.value("best", best);
    CapturedLog log;
    CheckpointerOptions options;
    options.directory = folder.path() / "run";
    options.notices.hear_signals = false;
    options.notices.cloud = false;
    Checkpointer checkpointer(state, options);
    checkpointer.resume();
    for (auto& batch : *loader) {
      const at::Tensor input = net.forward(batch.data) + 0.1 * at::randn({6}, noise, at::TensorOptions());
      const at::Tensor loss = (second->forward(input) - batch.target).pow(2).mean();
      const auto clear = [&] {
        optimizer.zero_grad();
        second_optimizer.zero_grad();
      };
      if (!mistakes.clears_gradients) clear();
      loss.backward();
      if (mistakes.announces) checkpointer.before_update();
      optimizer.step();
      second_optimizer.step();
      if (mistakes.clears_gradients) clear();
      {
        const at::NoGradGuard no_grad;
        if (mistakes.reassigns) {
          net.seen = 0.9 * net.seen + 0.1 * input.mean(0).detach();
        } else {
          net.seen.mul_(0.9).add_(0.1 * input.mean(0).detach());
        }
        for (const auto& parameter : average->named_parameters())
          parameter.value().lerp_(second->named_parameters()[parameter.key()], 0.1);
        // A generator that lives for one draw belongs to no state.
        at::Generator passing =
            at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(state.step()));
        net.seen.add_(1e-3 * at::rand({6}, passing, at::TensorOptions()));
      }
      StepReport report;
      report.loss = loss.item<double>();
      if (mistakes.reports_applied) report.applied = Cursor{0, 8 * (state.step() + 1)};
      if (mistakes.announces && state.step() >= 1) checkpointer.request_save();
      checkpointer.after_step(report);
      if (!mistakes.announces && state.step() >= 2) checkpointer.save().wait();
      if (state.step() == 3) break;
    }
    checkpointer.finish();
    return log.text();
  }
  static std::size_t warnings(const std::string& log) {
    std::size_t count = 0;
    for (std::size_t at = 0; (at = log.find("the training state may be incomplete", at)) != std::string::npos;
         ++at)
      ++count;
    return count;
  }
  void expect_one(const Mistakes& mistakes, const std::vector<std::string>& parts) {
    const std::string log = log_of(mistakes);
    EXPECT_EQ(warnings(log), 1U) << log;
    for (const std::string& part : parts) EXPECT_THAT(log, HasSubstr(part));
  }
};

TEST_F(FirstSave, ACompleteTrainerHearsNothing) {
  for (const Mistakes& none :
       {Mistakes{}, Mistakes{.clears_gradients = true}, Mistakes{.reports_applied = true}})
    EXPECT_EQ(warnings(log_of(none)), 0U) << log_of(none);
}

TEST_F(FirstSave, NamesParametersThatNoOptimizerTrains) {
  expect_one({.no_second_optimizer = true},
             {"2 parameters (second/weight, second/bias) have gradients", "no added optimizer trains them"});
}

TEST_F(FirstSave, NamesParametersWithoutAGradient) {
  expect_one({.orphan = true},
             {"2 parameters (net/unused.weight, net/unused.bias) have had no gradient so far"});
  expect_one({.orphan = true, .clears_gradients = true}, {"net/unused.weight"});
}

TEST_F(FirstSave, NamesTheDataThatNothingKeeps) {
  expect_one({.no_data = true}, {"no part of it knows the position in the data", ".applied"});
}

TEST_F(FirstSave, NamesTheGeneratorThatWasDrawnFrom) {
  expect_one({.no_generator = true},
             {"aten::randn drew from a generator of cpu (seed 11)", "state.add_generator"});
}

TEST_F(FirstSave, NamesABufferThatWasReassigned) {
  for (const bool announces : {false, true}) {
    expect_one({.reassigns = true, .announces = announces},
               {"buffer net/seen is no longer what the program uses", "copy_"});
  }
}

TEST_F(FirstSave, AllThatIsForgottenIsNamedOnce) {
  EXPECT_EQ(warnings(log_of({.no_second_optimizer = true,
                             .orphan = true,
                             .no_data = true,
                             .no_generator = true,
                             .reassigns = true})),
            5U);
}

// Its one state belongs to all parameters.
TEST_F(FirstSave, LbfgsHasOneStateForAll) {
  torch::nn::Linear net(2, 1);
  torch::optim::LBFGS optimizer(net->parameters(), torch::optim::LBFGSOptions(0.1).max_iter(2));
  TrainState state;
  state.add("net", *net);
  state.add("optimizer", optimizer);
  static_cast<void>(state.describe());
  optimizer.step([&] {
    optimizer.zero_grad();
    at::Tensor loss = net->forward(at::ones({3, 2})).pow(2).mean();
    loss.backward();
    return loss;
  });
  optimizer.zero_grad();
  state.advance({.applied = Cursor{0, 1}});
  EXPECT_THAT(state.doubts(), ::testing::IsEmpty());
}

TEST_F(FirstSave, ACounterOrAnEngineOfTheProgramMayBeThePosition) {
  const auto doubts = [](const std::function<void(TrainState&)>& add) {
    TrainState state;
    add(state);
    state.advance({});
    return state.doubts().size();
  };
  double rate = 1;
  std::int64_t position = 0;
  std::mt19937 engine;
  EXPECT_EQ(doubts([&](TrainState&) {}), 1U);
  EXPECT_EQ(doubts([&](TrainState& state) { state.value("rate", rate); }), 1U);
  EXPECT_EQ(doubts([&](TrainState& state) { state.value("loop", std::tie(rate, position)); }), 0U);
  EXPECT_EQ(doubts([&](TrainState& state) { state.value("engine", engine); }), 0U);
}

struct SomeData {
  void save(StateWriter&) const {}
  void load(const StateReader&) {}
  void applied(const Cursor&) {}
  void applied_all_delivered() {}
};

// The rate of an optimizer changed, and nothing says what changes it.
TEST_F(FirstSave, NamesAnOptimizerWhoseRateNobodyKeeps) {
  torch::nn::Linear net(2, 1);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1));
  torch::optim::StepLR halving(optimizer, 1, 0.5);
  SomeData data;
  Ema average(*net, {});
  std::int64_t bad_epochs = 0;
  double rate = 0.1;
  std::string name;
  at::Tensor hidden = at::ones({1});
  const auto told = [&](const std::function<void(TrainState&)>& add, bool changes = true) {
    optimizer.param_groups()[0].options().set_lr(0.1);
    TrainState state;
    state.add("net", *net);
    state.add("optimizer", optimizer);
    add(state);
    std::string texts;
    for (int save = 0; save < 3; ++save) {
      state.advance({.applied = Cursor{0, save + 1}});
      // The first save comes before the first change.
      if (save == 1 && changes) halving.step(), halving.step();
      for (const std::string& text : state.doubts()) texts += text + "\n";
    }
    return texts;
  };
  const auto nothing = [](TrainState&) {};
  const std::string text = told(nothing);
  EXPECT_THAT(text,
              AllOf(HasSubstr("optimizer 'optimizer': its learning rate changed since the start and "
                              "nothing in the state says what changes it"),
                    HasSubstr("state.add(\"schedule\", schedule)"), HasSubstr("rates_follow_position()")));
  EXPECT_EQ(text.find("learning rate"), text.rfind("learning rate")) << text;
  EXPECT_EQ(told(nothing, false), "");
  for (const auto& add : std::vector<std::function<void(TrainState&)>>{
           [&](TrainState& state) { state.add("data", data), state.add("average", average); },
           [&](TrainState& state) { state.value("hidden", std::tie(hidden, name)); },
       }) {
    EXPECT_THAT(told(add), HasSubstr("learning rate"));
  }
  for (const auto& add : std::vector<std::function<void(TrainState&)>>{
           [&](TrainState& state) { state.add("schedule", halving); },
           [&](TrainState& state) { state.value("bad_epochs", bad_epochs); },
           [&](TrainState& state) { state.value("rate", rate); },
           [&](TrainState& state) { state.rates_follow_position(); },
       }) {
    EXPECT_EQ(told(add), "");
  }
}

}}  // namespace holdfast::test
