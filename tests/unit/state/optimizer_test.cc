// For every optimizer: k steps, a snapshot, fresh objects, k steps more, against 2k steps straight, bit by
// bit.
#include <ATen/Parallel.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/rand.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <functional>

#include "holdfast/base/error.h"
#include "holdfast/state/train_state.h"
#include "unit/state/staging.h"

namespace holdfast::test { namespace {

using ::testing::HasSubstr;
using ::testing::Not;
namespace to = torch::optim;

struct NetImpl : torch::nn::Module {
  NetImpl() {
    first = register_module("first", torch::nn::Linear(6, 8));
    norm = register_module("norm", torch::nn::BatchNorm1d(8));
    dropout = register_module("dropout", torch::nn::Dropout(0.2));
    second = register_module("second", torch::nn::Linear(8, 3));
    spare = register_module("spare", torch::nn::Linear(4, 2));  // never used: its slots stay absent
  }
  at::Tensor forward(const at::Tensor& input) {
    return second->forward(dropout->forward(norm->forward(first->forward(input)).relu()));
  }
  torch::nn::Linear first{nullptr}, second{nullptr}, spare{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::Dropout dropout{nullptr};
};
TORCH_MODULE(Net);

using MakeOptimizer = std::function<std::unique_ptr<to::Optimizer>(NetImpl&)>;

struct Program {
  explicit Program(const MakeOptimizer& make, std::uint64_t seed = 99) {
    at::set_num_threads(1);  // tiny tensors: threads would only spin
    torch::manual_seed(seed);
    net = Net();
    optimizer = make(*net);
    state.add("model", *net);
    state.add("optimizer", *optimizer);
  }
  void train(int steps) {
    for (int i = 0; i < steps; ++i) {
      const auto t = static_cast<double>(state.step());
      const at::Tensor input = at::rand({5, 6}) + t * 0.01;
      const auto closure = [&] {
        optimizer->zero_grad();
        at::Tensor loss = at::mse_loss(net->forward(input), input.narrow(1, 0, 3));
        loss.backward();
        return loss;
      };
      if (dynamic_cast<to::LBFGS*>(optimizer.get())) {
        losses.push_back(optimizer->step(closure).item<double>());
      } else {
        losses.push_back(closure().item<double>());
        optimizer->step();
      }
      state.advance({});
    }
  }
  Net net{nullptr};
  std::unique_ptr<to::Optimizer> optimizer;
  TrainState state;
  std::vector<double> losses;
};

template <class Optimizer, class Options>
MakeOptimizer plain(Options options) {
  return [options](NetImpl& net) { return std::make_unique<Optimizer>(net.parameters(), options); };
}

// Two groups with their own options, the second added later.
template <class Optimizer, class Options>
MakeOptimizer grouped(Options options, Options second) {
  return [options, second](NetImpl& net) {
    auto optimizer = std::make_unique<Optimizer>(net.first->parameters(), options);
    auto parameters = net.norm->parameters();
    for (const auto& parameter : net.second->parameters()) parameters.push_back(parameter);
    optimizer->add_param_group(
        to::OptimizerParamGroup(parameters, std::make_unique<Options>(std::move(second))));
    return optimizer;
  };
}

// As parameters() lists those of a module that is registered twice: torch::optim updates them twice a step.
template <class Optimizer, class Options>
MakeOptimizer listed_twice(Options options) {
  return [options](NetImpl& net) {
    auto parameters = net.parameters();
    for (const auto& parameter : net.first->parameters()) parameters.push_back(parameter);
    return std::make_unique<Optimizer>(parameters, options);
  };
}

// The same in two groups, with their own options.
template <class Optimizer, class Options>
MakeOptimizer in_two_groups(Options options, Options second) {
  return [options, second](NetImpl& net) {
    auto optimizer = std::make_unique<Optimizer>(net.parameters(), options);
    optimizer->add_param_group(
        to::OptimizerParamGroup(net.first->parameters(), std::make_unique<Options>(second)));
    return optimizer;
  };
}

struct Case {
  std::string name;
  MakeOptimizer make;
};
std::ostream& operator<<(std::ostream& out, const Case& value) { return out << value.name; }

class EveryOptimizer : public ::testing::TestWithParam<Case> {};

TEST_P(EveryOptimizer, GoesOnBitByBit) {
  const MakeOptimizer& make = GetParam().make;
  Program straight(make, 1);
  straight.train(8);
  const std::string expected = digest(straight.state);

  Program first(make, 1);
  first.train(4);
  const auto snapshot = stage(first.state);
  torch::manual_seed(12345);

  Program second(make);
  EXPECT_NE(digest(second.state), digest(*snapshot));
  second.state.check(snapshot->layout->tensors(), snapshot->attributes, {});
  second.state.load(*snapshot, {});
  EXPECT_EQ(digest(second.state), digest(*snapshot));
  second.train(4);
  EXPECT_EQ(std::vector<double>(straight.losses.begin() + 4, straight.losses.end()), second.losses);
  EXPECT_EQ(digest(second.state), expected);
  second.train(1);
  EXPECT_NE(digest(second.state), expected);
}

// A program that has trained something else before load() keeps nothing of it.
TEST_P(EveryOptimizer, StaleSlotsAreReplaced) {
  const MakeOptimizer& make = GetParam().make;
  Program fresh(make, 1);
  const auto untouched = stage(fresh.state);
  Program used(make, 3);
  used.train(3);
  used.state.load(*untouched, {});
  EXPECT_EQ(digest(used.state), digest(*untouched));
  used.train(2);
  fresh.state.load(*untouched, {});
  fresh.train(2);
  EXPECT_EQ(digest(used.state), digest(fresh.state));
}

INSTANTIATE_TEST_SUITE_P(
    All, EveryOptimizer,
    ::testing::Values(
        Case{"Sgd", plain<to::SGD>(to::SGDOptions(0.1))},
        Case{"SgdNesterov",
             plain<to::SGD>(to::SGDOptions(0.1).momentum(0.9).nesterov(true).weight_decay(1e-3))},
        Case{"SgdGroups", grouped<to::SGD>(to::SGDOptions(0.1).momentum(0.9).dampening(0.1),
                                           to::SGDOptions(0.01).momentum(0.5).weight_decay(0.1))},
        Case{"Adam", plain<to::Adam>(to::AdamOptions(1e-2))},
        Case{"AdamAmsgrad", plain<to::Adam>(to::AdamOptions(1e-2).amsgrad(true).weight_decay(0.01))},
        Case{"AdamGroups", grouped<to::Adam>(to::AdamOptions(1e-2).betas({0.8, 0.99}),
                                             to::AdamOptions(1e-3).amsgrad(true).eps(1e-6))},
        Case{"AdamW", plain<to::AdamW>(to::AdamWOptions(1e-2))},
        Case{"AdamWAmsgradGroups", grouped<to::AdamW>(to::AdamWOptions(1e-2).weight_decay(0.1).amsgrad(true),
                                                      to::AdamWOptions(1e-3).weight_decay(0))},
        Case{"RmsProp", plain<to::RMSprop>(to::RMSpropOptions(1e-2))},
        Case{"RmsPropCentered", plain<to::RMSprop>(to::RMSpropOptions(1e-2).centered(true).momentum(0.9))},
        Case{"Adagrad",
             plain<to::Adagrad>(to::AdagradOptions(1e-2).lr_decay(0.01).initial_accumulator_value(0.5))},
        Case{"Lbfgs", plain<to::LBFGS>(to::LBFGSOptions(0.5).max_iter(4).history_size(3))},
        Case{"SgdListedTwice", listed_twice<to::SGD>(to::SGDOptions(0.1).momentum(0.9))},
        Case{"AdamListedTwice", listed_twice<to::Adam>(to::AdamOptions(1e-2).amsgrad(true))},
        Case{"AdamWListedTwice", listed_twice<to::AdamW>(to::AdamWOptions(1e-2))},
        Case{"RmsPropListedTwice", listed_twice<to::RMSprop>(to::RMSpropOptions(1e-2).momentum(0.9))},
        Case{"AdagradListedTwice", listed_twice<to::Adagrad>(to::AdagradOptions(1e-2).lr_decay(0.01))},
        Case{"LbfgsListedTwice", listed_twice<to::LBFGS>(to::LBFGSOptions(0.5).max_iter(4))},
        Case{"SgdInTwoGroups",
             in_two_groups<to::SGD>(to::SGDOptions(0.1).momentum(0.9), to::SGDOptions(0.01).momentum(0.5))},
        Case{"AdamInTwoGroups", in_two_groups<to::Adam>(to::AdamOptions(1e-2), to::AdamOptions(1e-3))},
        Case{"LbfgsWolfe", plain<to::LBFGS>(to::LBFGSOptions(1).max_iter(3).history_size(2).line_search_fn(
                               "strong_wolfe"))}),
    [](const auto& info) { return info.param.name; });

const MakeOptimizer kAdam = plain<to::Adam>(to::AdamOptions(1e-2));

TEST(OptimizerState, AbsentIsNotZero) {
  Program program(kAdam);
  EXPECT_FALSE(holds(*stage(program.state), "optimizer/exp_avg/first.weight"));
  EXPECT_EQ(program.state.attributes().get_ints("optimizer.group.0.steps"), std::vector<std::int64_t>(8, -1));
  program.train(3);
  const auto snapshot = stage(program.state);
  EXPECT_TRUE(holds(*snapshot, "optimizer/exp_avg/first.weight"));
  EXPECT_FALSE(holds(*snapshot, "optimizer/exp_avg/spare.weight"));
  EXPECT_FALSE(holds(*snapshot, "optimizer/max_exp_avg_sq/first.weight"));
  EXPECT_EQ(snapshot->attributes.get_ints("optimizer.group.0.steps"),
            (std::vector<std::int64_t>{3, 3, 3, 3, 3, 3, -1, -1}));
  Program other(kAdam);
  other.state.load(*snapshot, {});
  EXPECT_EQ(other.optimizer->state().size(), 6U);
}

TEST(OptimizerState, EveryOptionIsCompared) {
  Program before(plain<to::AdamW>(to::AdamWOptions(1e-2)));
  const auto snapshot = stage(before.state);
  Program after(
      plain<to::AdamW>(to::AdamWOptions(2e-2).betas({0.9, 0.99}).eps(1e-7).weight_decay(0.3).amsgrad(true)));
  const std::string text = message_of<RefusedError>([&] { after.state.load(*snapshot, {}); });
  EXPECT_THAT(text, HasSubstr("refused: "));
  for (const char* part : {"optimizer.group.0.lr is 0.02 here and 0.01 in the checkpoint", "group.0.betas",
                           "group.0.eps", "group.0.weight_decay", "group.0.amsgrad", "--override lr"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(message_of<RefusedError>([&] {
                after.state.load(*snapshot, {.overrides = {"lr", "betas", "optimizer.group.0.eps"}});
              }),
              Not(HasSubstr("lr")));
  after.state.load(*snapshot, {.overrides = {"lr", "betas", "eps", "weight_decay", "amsgrad"}});
  EXPECT_EQ(after.optimizer->param_groups()[0].options().get_lr(), 2e-2) << "the program's value stands";
}

TEST(OptimizerState, ARateThatMovedIsStateNotAnOption) {
  Program before(kAdam, 1);
  before.train(2);
  before.optimizer->param_groups()[0].options().set_lr(0.004);
  static_cast<to::AdamOptions&>(before.optimizer->param_groups()[0].options()).betas({0.5, 0.6});
  const auto snapshot = stage(before.state);
  EXPECT_EQ(snapshot->attributes.get_double("optimizer.group.0.lr"), 0.01);
  EXPECT_EQ(snapshot->attributes.get_double("optimizer.group.0.now.lr"), 0.004);

  Program after(kAdam);
  after.state.load(*snapshot, {});
  EXPECT_EQ(after.optimizer->param_groups()[0].options().get_lr(), 0.004);
  EXPECT_EQ(digest(after.state), digest(*snapshot));

  Program changed(plain<to::Adam>(to::AdamOptions(0.5)));
  changed.state.load(*snapshot, {.overrides = {"lr"}});
  EXPECT_EQ(changed.optimizer->param_groups()[0].options().get_lr(), 0.5);
  EXPECT_EQ(
      std::get<1>(static_cast<to::AdamOptions&>(changed.optimizer->param_groups()[0].options()).betas()),
      0.6);

  // Back to a snapshot in which nothing had moved.
  Program fresh(kAdam);
  after.state.load(*stage(fresh.state), {});
  EXPECT_EQ(after.optimizer->param_groups()[0].options().get_lr(), 0.01);
}

TEST(OptimizerState, AnotherTypeOrOtherGroupsAreRefused) {
  Program adam(kAdam);
  adam.train(1);
  const auto snapshot = stage(adam.state);
  Program sgd(plain<to::SGD>(to::SGDOptions(1e-2)));
  const std::string text = message_of<RefusedError>([&] { sgd.state.load(*snapshot, {}); });
  EXPECT_THAT(text, HasSubstr("'optimizer' is SGD here and Adam in the checkpoint"));
  EXPECT_THAT(text, Not(HasSubstr("momentum"))) << "one difference is told once";
  Program groups(grouped<to::Adam>(to::AdamOptions(1e-2), to::AdamOptions(1e-2)));
  EXPECT_THAT(message_of<RefusedError>([&] { groups.state.load(*snapshot, {}); }),
              HasSubstr("2 parameter groups here"));
  Program part([](NetImpl& net) {
    return std::make_unique<to::Adam>(net.first->parameters(), to::AdamOptions(1e-2));
  });
  EXPECT_THAT(message_of<RefusedError>([&] { part.state.load(*snapshot, {}); }),
              HasSubstr("only in the checkpoint norm.weight, norm.bias"));
}

TEST(OptimizerState, UnknownOptimizersAndParametersAreRefused) {
  struct Own final : to::Adam {
    using to::Adam::Adam;
  };
  Net net;
  TrainState state;
  Own own(net->parameters(), to::AdamOptions(1e-2));
  to::Adam stray(net->parameters(), to::AdamOptions(1e-2));
  EXPECT_THAT(message_of<UsageError>([&] { state.add("optimizer", stray); }), HasSubstr("no added module"));
  state.add("model", *net);
  const std::string text = message_of<UsageError>([&] { state.add("optimizer", own); });
  EXPECT_THAT(text, HasSubstr("Own"));
  EXPECT_THAT(text, HasSubstr("save(StateWriter&)"));
  state.add("optimizer", stray);
}

TEST(OptimizerState, SlotsOfSeveralModulesKeepTheirNames) {
  const auto run = [](int before, int after) {
    torch::manual_seed(4);
    torch::nn::Linear left(3, 3), right(3, 3);
    auto parameters = left->parameters();
    for (const auto& parameter : right->parameters()) parameters.push_back(parameter);
    to::SGD optimizer(parameters, to::SGDOptions(0.1).momentum(0.9));
    TrainState state;
    state.add("left", *left);
    state.add("right", *right);
    state.add("optimizer", optimizer);
    std::shared_ptr<Snapshot> snapshot;
    for (int i = 0; i < before + after; ++i) {
      optimizer.zero_grad();
      right->forward(left->forward(at::rand({2, 3}))).sum().backward();
      optimizer.step();
      if (i + 1 == before) snapshot = stage(state);
    }
    EXPECT_TRUE(holds(*snapshot, "optimizer/momentum_buffer/left.weight"));
    EXPECT_TRUE(holds(*snapshot, "optimizer/momentum_buffer/right.weight"));
    const std::string end = digest(state);
    state.load(*snapshot, {});
    for (int i = 0; i < after; ++i) {
      optimizer.zero_grad();
      right->forward(left->forward(at::rand({2, 3}))).sum().backward();
      optimizer.step();
    }
    EXPECT_EQ(digest(state), end);
  };
  run(2, 3);
}

// One Linear under two names, and two names for one weight (an embedding and the layer that it is tied to).
struct TiedNetImpl : torch::nn::Module {
  TiedNetImpl() {
    torch::nn::Linear shared(4, 4);
    encoder = register_module("encoder", shared);
    decoder = register_module("decoder", shared);
    left = register_parameter("left", at::rand({4, 4}));
    register_parameter("right", left);
  }
  at::Tensor forward(const at::Tensor& input) {
    return decoder->forward(encoder->forward(input).relu().matmul(left)).matmul(left.t());
  }
  torch::nn::Linear encoder{nullptr}, decoder{nullptr};
  at::Tensor left;
};
TORCH_MODULE(TiedNet);

TEST(OptimizerState, ModulesRegisteredTwiceAndTiedWeightsGoOnBitByBit) {
  struct Tied {
    explicit Tied(std::uint64_t seed) {
      torch::manual_seed(seed);
      net = TiedNet();
      optimizer = std::make_unique<to::AdamW>(net->parameters(), to::AdamWOptions(1e-2));
      state.add("model", *net);
      state.add("optimizer", *optimizer);
    }
    void train(int steps) {
      for (int i = 0; i < steps; ++i) {
        optimizer->zero_grad();
        net->forward(at::rand({3, 4})).square().mean().backward();
        optimizer->step();
        state.advance({});
      }
    }
    TiedNet net{nullptr};
    std::unique_ptr<to::AdamW> optimizer;
    TrainState state;
  };
  Tied straight(1);
  ASSERT_EQ(straight.net->parameters().size(), 6U) << "LibTorch lists them twice";
  straight.train(6);
  Tied first(1);
  first.train(3);
  const auto snapshot = stage(first.state);
  // Under the name that comes first, once.
  EXPECT_TRUE(holds(*snapshot, "optimizer/exp_avg/left"));
  EXPECT_FALSE(holds(*snapshot, "optimizer/exp_avg/right"));
  Tied second(7);
  second.state.check(snapshot->layout->tensors(), snapshot->attributes, {});
  second.state.load(*snapshot, {});
  EXPECT_EQ(digest(second.state), digest(*snapshot));
  second.train(3);
  EXPECT_EQ(digest(second.state), digest(straight.state));
}

TEST(OptimizerState, SlotsGetTheirStridesBack) {
  const auto train = [](torch::nn::Conv2d& conv, to::Optimizer& optimizer, int steps) {
    for (int i = 0; i < steps; ++i) {
      optimizer.zero_grad();
      conv->forward(at::rand({2, 4, 6, 6}).contiguous(at::MemoryFormat::ChannelsLast))
          .square()
          .mean()
          .backward();
      optimizer.step();
    }
  };
  const auto make = [](TrainState& state, torch::nn::Conv2d& conv, std::unique_ptr<to::SGD>& optimizer,
                       bool last) {
    torch::manual_seed(2);
    conv = torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 8, 3));
    if (last) {
      for (auto& parameter : conv->parameters()) {
        if (parameter.dim() == 4) parameter.set_data(parameter.contiguous(at::MemoryFormat::ChannelsLast));
      }
    }
    optimizer = std::make_unique<to::SGD>(conv->parameters(), to::SGDOptions(0.1).momentum(0.9));
    state.add("model", *conv);
    state.add("optimizer", *optimizer);
  };
  TrainState first, second;
  torch::nn::Conv2d conv(nullptr), other(nullptr);
  std::unique_ptr<to::SGD> optimizer, other_optimizer;
  make(first, conv, optimizer, true);
  train(conv, *optimizer, 2);
  const auto snapshot = stage(first);
  EXPECT_EQ(snapshot->attributes.get_ints("model.strides.weight"), (std::vector<std::int64_t>{36, 1, 12, 4}));
  EXPECT_TRUE(snapshot->attributes.has("optimizer.strides.momentum_buffer/weight"));
  EXPECT_EQ(values<float>(*snapshot, "model/weight")[1], conv->weight[0][0][0][1].item<float>())
      << "logical order";
  train(conv, *optimizer, 2);

  make(second, other, other_optimizer, false);  // a program that forgot channels_last
  second.load(*snapshot, {});
  EXPECT_EQ(other->weight.strides(), conv->weight.strides());
  for (auto& [key, slot] : other_optimizer->state()) {
    const auto& buffer = static_cast<to::SGDParamState&>(*slot).momentum_buffer();
    if (buffer.dim() == 4) {
      EXPECT_EQ(buffer.strides(), conv->weight.strides());
    }
  }
  train(other, *other_optimizer, 2);
  EXPECT_EQ(digest(second), digest(first));
}

// What a component cuts by the layout of the parameters fits the layout that the checkpoint brings. If a later
// component throws, the parameters have their own memory, layout and gradients again.
TEST(TrainState, ComponentsLoadWithTheParametersAsRecorded) {
  struct Looks {
    torch::nn::Conv2d* of = nullptr;
    bool throws = false;
    std::vector<std::vector<std::int64_t>> seen = {};
    void save(StateWriter& out) const { out.put("version", std::int64_t{1}); }
    void load(const StateReader& /*in*/) {
      seen.push_back((*of)->weight.strides().vec());
      if (throws && seen.size() == 1) throw Error("not today");
    }
  };
  const auto add = [](TrainState& state, torch::nn::Conv2d& conv, Looks& looks, bool last) {
    conv = torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 8, 3));
    if (last) conv->weight.set_data(conv->weight.contiguous(at::MemoryFormat::ChannelsLast));
    state.add("model", *conv);
    looks.of = &conv;
    state.add("looks", looks);
  };
  TrainState recorded;
  torch::nn::Conv2d conv(nullptr);
  Looks none;
  add(recorded, conv, none, true);
  const auto snapshot = stage(recorded);
  for (const bool throws : {false, true}) {
    TrainState state;
    torch::nn::Conv2d other(nullptr);
    Looks looks{.throws = throws};
    add(state, other, looks, false);
    other->weight.square().sum().backward();
    const at::Tensor weight = other->weight.detach().clone(), gradient = other->weight.grad();
    const void* const memory = other->weight.const_data_ptr();
    if (!throws) {
      state.load(*snapshot, {});
      EXPECT_TRUE(other->weight.equal(conv->weight));
      EXPECT_EQ(looks.seen, std::vector({conv->weight.strides().vec()}));
      continue;
    }
    EXPECT_THROW(state.load(*snapshot, {}), Error);
    EXPECT_EQ(looks.seen, std::vector({conv->weight.strides().vec(), weight.strides().vec()}))
        << "it gets back what it had, in the layout that it had";
    EXPECT_EQ(other->weight.const_data_ptr(), memory);
    EXPECT_TRUE(other->weight.equal(weight));
    EXPECT_TRUE(other->weight.grad().is_same(gradient));
  }
}

// Under an override of the option that chose them, this program's strides stand, the slots' included.
TEST(OptimizerState, StridesAreTheProgramsOwnUnderAnOverrideOfTheLayout) {
  const auto make = [](TrainState& state, torch::nn::Conv2d& conv, std::unique_ptr<to::SGD>& optimizer,
                       bool last) {
    torch::manual_seed(2);
    conv = torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 8, 3));
    if (last) conv->weight.set_data(conv->weight.contiguous(at::MemoryFormat::ChannelsLast));
    optimizer = std::make_unique<to::SGD>(conv->parameters(), to::SGDOptions(0.1).momentum(0.9));
    state.add("model", *conv);
    state.add("optimizer", *optimizer);
    state.layout_option("channels_last", last);
  };
  for (const bool last : {true, false}) {
    TrainState before, after;
    torch::nn::Conv2d conv(nullptr), other(nullptr);
    std::unique_ptr<to::SGD> optimizer, other_optimizer;
    make(before, conv, optimizer, last);
    conv->forward(at::rand({2, 4, 6, 6})).square().mean().backward();
    optimizer->step();
    const auto snapshot = stage(before);
    make(after, other, other_optimizer, !last);
    const auto mine = other->weight.strides().vec();
    EXPECT_THAT(message_of<RefusedError>([&] { after.load(*snapshot, {}); }), HasSubstr("channels_last"));
    after.load(*snapshot, {.overrides = {"channels_last"}});
    EXPECT_EQ(other->weight.strides().vec(), mine);
    EXPECT_TRUE(other->weight.equal(conv->weight));
    const auto buffer = [](to::SGD& sgd, torch::nn::Conv2d& of) {
      return static_cast<to::SGDParamState&>(*sgd.state().at(of->weight.unsafeGetTensorImpl()))
          .momentum_buffer();
    };
    EXPECT_EQ(buffer(*other_optimizer, other).strides().vec(), mine);
    EXPECT_TRUE(buffer(*other_optimizer, other).equal(buffer(*optimizer, conv)));
  }
}

}}  // namespace holdfast::test
