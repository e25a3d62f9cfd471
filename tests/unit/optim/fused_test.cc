// Fused optimizers against torch::optim: bits, slots, options, checkpoints, and what a loss scaler asks for.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include "holdfast/base/error.h"
#include "holdfast/optim/decay_groups.h"
#include "holdfast/optim/fused_adam.h"
#include "holdfast/optim/fused_sgd.h"
#include "holdfast/optim/lamb.h"
#include "holdfast/optim/make_optimizer.h"
#include "holdfast/state/torch_compat.h"
#include "holdfast/state/train_state.h"
#include "unit/state/staging.h"

namespace holdfast::test {
namespace {

using ::testing::HasSubstr;
namespace to = torch::optim;
using Tensors = std::vector<at::Tensor>;

at::Tensor leaf(const at::Tensor& values) { return values.detach().requires_grad_(); }

// Odd sizes, memory formats, gaps, none at all; one long enough for threads.
Tensors parameters(at::ScalarType type) {
  torch::manual_seed(3);
  const auto random = [&](at::IntArrayRef sizes) { return at::randn(sizes, type); };
  return {leaf(random({1})),
          leaf(random({7})),
          leaf(random({64})),
          leaf(random({5, 3, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast)),
          leaf(random({8, 4, 1, 1}).contiguous(at::MemoryFormat::ChannelsLast)),
          leaf(random({9, 5}).t()),
          leaf(random({6, 10}).narrow(1, 2, 7)),
          leaf(random({0, 3})),
          leaf(random({40'003})),
          leaf(random({13}))};
}

// The same gradients for both, in layouts that are not always the parameters'; every third lacks some.
void give_gradients(const Tensors& ours, const Tensors& theirs, int step) {
  for (std::size_t i = 0; i < ours.size(); ++i) {
    at::Tensor gradient = at::randn(ours[i].sizes(), ours[i].options().requires_grad(false));
    if (gradient.dim() == 4 && step % 2 == 1) gradient = gradient.contiguous(at::MemoryFormat::ChannelsLast);
    const bool none = step % 3 == 1 && i % 2 == 1;
    ours[i].mutable_grad() = none ? at::Tensor() : gradient.clone();
    theirs[i].mutable_grad() = none ? at::Tensor() : gradient.clone();
  }
}

template <class Options>
std::vector<to::OptimizerParamGroup> two_groups(const Tensors& all, const Options& first,
                                                const Options& second) {
  const auto middle = all.begin() + 4;
  std::vector<to::OptimizerParamGroup> groups;
  groups.emplace_back(Tensors(all.begin(), middle), std::make_unique<Options>(first));
  groups.emplace_back(Tensors(), std::make_unique<Options>(first));
  groups.emplace_back(Tensors(middle, all.end()), std::make_unique<Options>(second));
  return groups;
}

// torch::optim's own, with the groups' own options in every release.
template <class Optimizer, class Options>
Optimizer torchs(const std::vector<to::OptimizerParamGroup>& groups, const Options& defaults) {
  Optimizer optimizer(groups, defaults);
  compat::keep_options(optimizer, groups);
  return optimizer;
}

template <class State>
State* state_of(to::Optimizer& optimizer, const at::Tensor& parameter) {
  const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
  return found == optimizer.state().end() ? nullptr : static_cast<State*>(found->second.get());
}

class SgdBits : public ::testing::TestWithParam<std::tuple<at::ScalarType, int>> {};

TEST_P(SgdBits, AreTorchsInEveryUpdate) {
  const auto [type, threads] = GetParam();
  at::set_num_threads(threads);
  const to::SGDOptions plain(0.1);
  const auto momentum = to::SGDOptions(0.03).momentum(0.9).weight_decay(1e-2);
  const auto nesterov = to::SGDOptions(0.2).momentum(0.8).nesterov(true);
  const auto damped = to::SGDOptions(0.1).momentum(0.7).dampening(0.3).weight_decay(0.1);
  const std::vector<std::pair<to::SGDOptions, to::SGDOptions>> cases = {{plain, momentum},
                                                                        {nesterov, damped}};
  for (const auto& [first, second] : cases) {
    const Tensors ours = parameters(type), theirs = parameters(type);
    FusedSgd fused(two_groups(ours, first, second), first);
    auto plain_one = torchs<to::SGD>(two_groups(theirs, first, second), first);
    for (int step = 0; step < 50; ++step) {
      give_gradients(ours, theirs, step);
      fused.step();
      plain_one.step();
      for (std::size_t i = 0; i < ours.size(); ++i) {
        ASSERT_TRUE(ours[i].equal(theirs[i])) << "parameter " << i << " after update " << step;
        auto *const one = state_of<to::SGDParamState>(fused, ours[i]), *const other =
                                                                           state_of<to::SGDParamState>(
                                                                               plain_one, theirs[i]);
        ASSERT_EQ(one == nullptr, other == nullptr) << i;
        if (one) {
          ASSERT_TRUE(one->momentum_buffer().equal(other->momentum_buffer())) << i;
        }
      }
    }
  }
  at::set_num_threads(1);
}
INSTANTIATE_TEST_SUITE_P(Types, SgdBits,
                         ::testing::Values(std::tuple(at::kFloat, 1), std::tuple(at::kDouble, 1),
                                           std::tuple(at::kFloat, 2)));

double worst(const at::Tensor& one, const at::Tensor& other, const at::Tensor& scale) {
  if (one.numel() == 0) return 0;
  const double ulp = one.scalar_type() == at::kDouble  ? 0x1p-52
                     : one.scalar_type() == at::kFloat ? 0x1p-23
                     : one.scalar_type() == at::kHalf  ? 0x1p-10
                                                       : 0x1p-7;
  const auto wide = [](const at::Tensor& tensor) { return tensor.detach().to(at::kDouble); };
  return ((wide(one) - wide(other)).abs() / (wide(scale).abs() * ulp + 1e-300)).max().item<double>();
}

struct Worst {
  double parameter = 0, moment = 0, square = 0, end = 0;
};

// From equal states each update; and 50 on end without.
template <class Fused, class Torch, class Options, class State>
Worst measure_adam(at::ScalarType type, const Options& first, const Options& second) {
  Worst found;
  for (const bool together : {true, false}) {
    const Tensors ours = parameters(type), theirs = parameters(type);
    Fused fused(two_groups(ours, first, second), first);
    auto plain = torchs<Torch>(two_groups(theirs, first, second), first);
    for (int step = 0; step < 50; ++step) {
      give_gradients(ours, theirs, step);
      Tensors before, moments;
      for (const at::Tensor& parameter : theirs) {
        before.push_back(parameter.detach().clone());
        const auto* state = state_of<State>(plain, parameter);
        moments.push_back(state ? state->exp_avg().clone() : at::zeros_like(parameter));
      }
      fused.step();
      plain.step();
      const at::NoGradGuard no_grad;
      for (std::size_t i = 0; i < ours.size(); ++i) {
        auto *const one = state_of<State>(fused, ours[i]), *const other = state_of<State>(plain, theirs[i]);
        EXPECT_EQ(one == nullptr, other == nullptr);
        if (!one || !together) continue;
        EXPECT_EQ(one->step(), other->step());
        EXPECT_EQ(one->max_exp_avg_sq().defined(), other->max_exp_avg_sq().defined());
        if (!ours[i].grad().defined()) continue;
        const Options& options = i < 4 ? first : second;
        const at::Tensor pull = ours[i].grad().abs() + options.weight_decay() * before[i].abs();
        const at::Tensor largest = at::maximum(moments[i].abs(), pull);
        const auto t = static_cast<double>(one->step());
        const auto [beta1, beta2] = options.betas();
        const at::Tensor denominator =
            (options.amsgrad() ? other->max_exp_avg_sq() : other->exp_avg_sq()).sqrt() /
                std::sqrt(1 - std::pow(beta2, t)) +
            options.eps();
        const at::Tensor change = options.lr() / (1 - std::pow(beta1, t)) * largest / denominator;
        found.parameter =
            std::max(found.parameter, worst(ours[i], theirs[i], at::maximum(before[i].abs(), change)));
        found.moment = std::max(found.moment, worst(one->exp_avg(), other->exp_avg(), largest));
        found.square = std::max(found.square, worst(one->exp_avg_sq(), other->exp_avg_sq(),
                                                    at::maximum(other->exp_avg_sq(), pull.square())));
        ours[i].copy_(theirs[i]);
        one->exp_avg().copy_(other->exp_avg());
        one->exp_avg_sq().copy_(other->exp_avg_sq());
        if (one->max_exp_avg_sq().defined()) one->max_exp_avg_sq().copy_(other->max_exp_avg_sq());
      }
    }
    for (std::size_t i = 0; !together && i < ours.size(); ++i) {
      if (ours[i].numel() == 0) continue;
      const double largest = theirs[i].abs().max().template item<double>();
      found.end = std::max(
          found.end, (ours[i] - theirs[i]).abs().max().template item<double>() / std::max(largest, 1.0));
    }
  }
  return found;
}

class AdamBits : public ::testing::TestWithParam<at::ScalarType> {};
TEST_P(AdamBits, AreWithinAFewUlpOfTorchs) {
  at::set_num_threads(1);
  const auto a = to::AdamOptions(1e-2),
             b = to::AdamOptions(3e-3).betas({0.8, 0.99}).weight_decay(0.1).amsgrad(true);
  const auto c = to::AdamWOptions(1e-2), d = to::AdamWOptions(3e-3).weight_decay(0).amsgrad(true).eps(1e-6);
  const Worst adam = measure_adam<FusedAdam, to::Adam, to::AdamOptions, to::AdamParamState>(GetParam(), a, b);
  const Worst adamw =
      measure_adam<FusedAdamW, to::AdamW, to::AdamWOptions, to::AdamWParamState>(GetParam(), c, d);
  for (const Worst& found : {adam, adamw}) {
    RecordProperty("ulp", std::to_string(found.parameter) + " " + std::to_string(found.moment) + " " +
                              std::to_string(found.square) + " end " + std::to_string(found.end));
    EXPECT_LE(found.parameter, 4);
    EXPECT_LE(found.moment, 2);
    EXPECT_LE(found.square, 2);
    EXPECT_LE(found.end, GetParam() == at::kDouble ? 1e-14 : 1e-5);
  }
}
INSTANTIATE_TEST_SUITE_P(Types, AdamBits, ::testing::Values(at::kFloat, at::kDouble));

// Half of the numbers in float: the kernels round once an update.
TEST(FusedAdam, ComputesSixteenBitParametersInFloat) {
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    const at::Tensor narrow = leaf(at::randn({1003}, at::kFloat).to(type)),
                     wide = leaf(narrow.to(at::kFloat));
    FusedAdam one({narrow}, to::AdamOptions(1e-2)), other({wide}, to::AdamOptions(1e-2));
    const at::Tensor gradient = at::randn({1003}).to(type);
    narrow.mutable_grad() = gradient;
    wide.mutable_grad() = gradient.to(at::kFloat);
    one.step();
    other.step();
    EXPECT_LE(worst(narrow, wide, at::maximum(wide.abs(), at::full({1003}, 1e-2))), 1.0) << type;
  }
}

TEST(FusedSgd, UpdatesSixteenBitParametersOrSaysWhyNot) {
  const at::Tensor parameter = leaf(at::zeros({100}, at::kBFloat16));
  parameter.mutable_grad() = at::ones({100}, at::kBFloat16);
  FusedSgd optimizer({parameter}, to::SGDOptions(1));
  try {
    optimizer.step();
    EXPECT_TRUE(parameter.eq(-1).all().item<bool>());
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("BFloat16 parameters on a CPU loses updates"));
    EXPECT_THAT(error.what(), HasSubstr("torch::optim::SGD"));
    EXPECT_TRUE(parameter.eq(0).all().item<bool>());
  }
}

// Checkpoints are interchangeable: some updates by one, the rest by the other.
struct Program {
  explicit Program(const std::string& name,
                   const OptimizerSettings& settings = {.lr = 0.05, .weight_decay = 1e-3}) {
    torch::manual_seed(1);
    net->push_back(torch::nn::Linear(6, 7));
    net->push_back(torch::nn::Linear(7, 3));
    use(make_optimizer(name, *net, settings));
  }
  void use(std::unique_ptr<to::Optimizer> made) {
    optimizer = std::move(made);
    state.emplace();
    state->add("model", *net);
    state->add("optimizer", *optimizer);
  }
  void train(int steps) {
    for (int i = 0; i < steps; ++i) {
      const at::Tensor input = at::randn({4, 6});
      optimizer->zero_grad();
      net->forward(input).square().mean().backward();
      optimizer->step();
      state->advance({});
    }
  }
  torch::nn::Sequential net;
  std::unique_ptr<to::Optimizer> optimizer;
  std::optional<TrainState> state;
};

class Interchange : public ::testing::TestWithParam<const char*> {};
TEST_P(Interchange, CheckpointsGoOnUnderTheOther) {
  const std::string fused = GetParam(), torchs = "torch-" + fused;
  for (const auto& [first, second] : {std::pair(torchs, fused), std::pair(fused, torchs)}) {
    Program before(first);
    before.train(4);
    const auto snapshot = stage(*before.state);
    Program same(first), other(second);
    for (Program* program : {&same, &other}) {
      program->state->check(snapshot->layout->tensors(), snapshot->attributes, {});
      program->state->load(*snapshot, {});
      EXPECT_EQ(digest(*program->state), digest(*snapshot)) << second;
      program->train(4);
    }
    if (fused == "sgd") {
      EXPECT_EQ(digest(*other.state), digest(*same.state)) << "to the last bit";
    }
    const Tensors one = same.net->parameters(), two = other.net->parameters();
    for (std::size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(one[i].allclose(two[i], 1e-5, 1e-6));
  }
}
INSTANTIATE_TEST_SUITE_P(All, Interchange, ::testing::Values("sgd", "adam", "adamw"));

TEST(Lamb, ResumesBitByBit) {
  const OptimizerSettings settings = {.lr = 0.01, .weight_decay = 0.1, .decay_all = false};
  Program straight("lamb", settings);
  straight.train(8);
  Program second("lamb", settings), first("lamb", settings);
  first.train(4);
  const auto snapshot = stage(*first.state);
  EXPECT_EQ(snapshot->attributes.get_string("optimizer.type"), "LAMB");
  EXPECT_TRUE(holds(*snapshot, "optimizer/exp_avg/0.weight"));
  second.state->check(snapshot->layout->tensors(), snapshot->attributes, {});
  second.state->load(*snapshot, {});
  second.train(4);
  EXPECT_EQ(digest(*second.state), digest(*straight.state));
  Program adam("adam", settings);
  EXPECT_THAT(message_of<RefusedError>([&] { adam.state->load(*snapshot, {}); }),
              HasSubstr("LAMB in the checkpoint"));
}

TEST(Lamb, VariantsAreRecordedWhereThereAreAny) {
  struct Run {
    explicit Run(const LambOptions& options) : optimizer(net->parameters(), options) {
      state.add("model", *net);
      state.add("optimizer", optimizer);
    }
    torch::nn::Linear net{3, 2};
    Lamb optimizer;
    TrainState state;
  };
  Run plain(LambOptions(0.1)), apex(LambOptions(0.1).max_grad_norm(1));
  const auto old = stage(plain.state), clipped = stage(apex.state);
  for (const char* option :
       {"max_grad_norm", "grad_averaging", "bias_correction", "decoupled", "most_norm"}) {
    EXPECT_FALSE(old->attributes.has(std::string("optimizer.group.0.") + option)) << option;
  }
  EXPECT_TRUE(old->attributes.has("optimizer.group.0.adapt_all"));
  EXPECT_EQ(clipped->attributes.get_double("optimizer.group.0.max_grad_norm"), 1);
  const auto refused = [](Run& run, const Snapshot& from) {
    return message_of<RefusedError>([&] { run.state.check(from.layout->tensors(), from.attributes, {}); });
  };
  EXPECT_THAT(refused(apex, *old), HasSubstr("optimizer.group.0.max_grad_norm"));
  EXPECT_THAT(refused(plain, *clipped), HasSubstr("optimizer.group.0.max_grad_norm"));
  for (const auto& [first, snapshot] : {std::pair(&plain, old), std::pair(&apex, clipped)}) {
    first->state.check(snapshot->layout->tensors(), snapshot->attributes, {});
    first->state.load(*snapshot, {});
    EXPECT_EQ(digest(first->state), digest(*snapshot));
  }
  const auto limit = [](Run& run) -> LambOptions& {
    return static_cast<LambOptions&>(run.optimizer.param_groups()[0].options());
  };
  limit(apex).max_grad_norm(0.5);  // chosen by one run, changed since, and overridden in another
  plain.state.load(*stage(apex.state), {"max_grad_norm"});
  EXPECT_EQ(limit(plain).max_grad_norm(), 0);
}

TEST(FusedSgd, AdoptsAndGivesBack) {
  Program one("torch-sgd"), other("torch-sgd");
  torch::manual_seed(5);
  one.train(6);
  torch::manual_seed(5);
  other.train(2);
  auto& torchs = static_cast<to::SGD&>(*other.optimizer);
  torchs.param_groups()[0].options().set_lr(0.07);
  {
    FusedSgd fused(torchs);
    EXPECT_TRUE(torchs.state().empty());
    EXPECT_EQ(fused.state().size(), 4U);
    EXPECT_EQ(fused.param_groups()[0].options().get_lr(), 0.07);
    fused.param_groups()[0].options().set_lr(0.05);
    for (int i = 0; i < 2; ++i) {
      fused.zero_grad();
      other.net->forward(at::randn({4, 6})).square().mean().backward();
      fused.step();
      other.state->advance({});
    }
    to::SGD stranger(Tensors{leaf(at::zeros({2}))}, 0.1);
    EXPECT_THAT(message_of<UsageError>([&] { fused.give_back(stranger); }), HasSubstr("other groups"));
    EXPECT_THAT(message_of<UsageError>([&] { stage(*other.state); }), HasSubstr("'optimizer' has no slots"));
    TrainState theirs;
    theirs.add("model", *other.net);
    theirs.add("optimizer", fused);
    EXPECT_TRUE(holds(*stage(theirs), "optimizer/momentum_buffer/0.weight"));
    fused.give_back(torchs);
    EXPECT_THAT(message_of<UsageError>([&] { stage(theirs); }), HasSubstr("give_back()"));
    stage(*other.state);
  }
  EXPECT_EQ(torchs.param_groups()[0].options().get_lr(), 0.05);
  other.train(2);
  const Tensors left = one.net->parameters(), right = other.net->parameters();
  for (std::size_t i = 0; i < left.size(); ++i) EXPECT_TRUE(left[i].equal(right[i]));
}

// What a GPU does, on the CPU: kernels read rate and skip from memory, and counts live there.
template <class Optimizer>
struct Deciding final : Optimizer {
  using Optimizer::Optimizer;
  bool decides_on(at::Device) const override { return true; }
  const std::type_info& described() const override { return typeid(Deciding); }
};

template <class Optimizer, class Options>
void expect_skips(const Options& options) {
  for (const bool device : {false, true}) {
    const Tensors ours = parameters(at::kFloat), theirs = parameters(at::kFloat);
    std::unique_ptr<Optimizer> skipping;
    if (device) {
      skipping = std::make_unique<Deciding<Optimizer>>(ours, options);
    } else {
      skipping = std::make_unique<Optimizer>(ours, options);
    }
    Optimizer plain(theirs, options);
    const at::Tensor scale = at::full({1}, 4.0);
    for (int step = 0; step < 12; ++step) {
      give_gradients(ours, theirs, step);
      const bool skip = step % 5 == 0;
      for (const at::Tensor& parameter : ours) {
        if (!parameter.grad().defined()) continue;
        parameter.mutable_grad().mul_(4);
        if (skip) parameter.mutable_grad().fill_(std::numeric_limits<float>::infinity());
      }
      skipping->param_groups()[0].options().set_lr(0.125 / (1 + step));
      plain.param_groups()[0].options().set_lr(0.125 / (1 + step));
      // More than 1: the sum of several ranks'.
      skipping->step_scaled(scale, at::full({1}, skip ? 1.0 + step % 2 : 0.0));
      if (!skip) plain.step();
      for (std::size_t i = 0; i < ours.size(); ++i) {
        ASSERT_TRUE(ours[i].allclose(theirs[i], 1e-4, 1e-5)) << i << " " << step << " " << device;
        if (!skip && ours[i].grad().defined()) {
          ASSERT_TRUE(ours[i].grad().equal(theirs[i].grad())) << "divided and left so";
        }
      }
    }
    skipping->settle();
    if constexpr (!std::is_same_v<Optimizer, FusedSgd>) {
      using State = std::conditional_t<
          std::is_same_v<Optimizer, Lamb>, LambParamState,
          std::conditional_t<std::is_same_v<Optimizer, FusedAdam>, to::AdamParamState, to::AdamWParamState>>;
      for (std::size_t i = 0; i < ours.size(); ++i) {
        EXPECT_EQ(state_of<State>(*skipping, ours[i])->step(), state_of<State>(plain, theirs[i])->step());
      }
    }
  }
}
TEST(Skips, LeaveNoTraceUnderSgd) {
  expect_skips<FusedSgd>(to::SGDOptions(0.1).momentum(0.9).weight_decay(0.01));
}
TEST(Skips, LeaveNoTraceUnderDampedSgd) {
  expect_skips<FusedSgd>(to::SGDOptions(0.1).momentum(0.9).dampening(0.5));
}
TEST(Skips, LeaveNoTraceUnderAdam) { expect_skips<FusedAdam>(to::AdamOptions(0.1).amsgrad(true)); }
TEST(Skips, LeaveNoTraceUnderAdamW) { expect_skips<FusedAdamW>(to::AdamWOptions(0.1)); }
TEST(Skips, LeaveNoTraceUnderLamb) { expect_skips<Lamb>(LambOptions(0.1).weight_decay(0.1)); }

TEST(Skips, MakeNoSlotsOnACpu) {
  const at::Tensor parameter = leaf(at::ones({3}));
  parameter.mutable_grad() = at::ones({3});
  FusedAdam optimizer({parameter}, to::AdamOptions(0.1));
  optimizer.step_scaled({}, at::ones({1}));
  EXPECT_TRUE(optimizer.state().empty());
  EXPECT_TRUE(parameter.equal(at::ones({3})));
}

// Counts on the device reach the checkpoint, and begin anew from one.
TEST(FusedAdam, CountsOnADeviceFollowCheckpoints) {
  const auto deciding = [](Program& program) {
    program.use(std::make_unique<Deciding<FusedAdam>>(program.net->parameters(), to::AdamOptions(0.125)));
  };
  Program one("adam"), other("adam");
  deciding(one);
  deciding(other);
  one.train(5);
  const auto snapshot = stage(*one.state);
  EXPECT_EQ(snapshot->attributes.get_ints("optimizer.group.0.steps"), std::vector<std::int64_t>(4, 5));
  other.train(2);
  other.state->load(*snapshot, {});
  torch::manual_seed(8);
  one.train(3);
  torch::manual_seed(8);
  other.train(3);
  EXPECT_EQ(stage(*other.state)->attributes.get_ints("optimizer.group.0.steps"),
            std::vector<std::int64_t>(4, 8));
  const Tensors left = one.net->parameters(), right = other.net->parameters();
  for (std::size_t i = 0; i < left.size(); ++i) EXPECT_TRUE(left[i].equal(right[i]));
}

// In a checkpoint's eyes a derived class is another optimizer, until it says that it is not.
TEST(FusedSgd, ADerivedClassIsRefusedWithItsUnknownState) {
  struct Own final : FusedSgd {
    using FusedSgd::FusedSgd;
    std::int64_t calls = 0;
  };
  Program program("sgd");
  EXPECT_THAT(message_of<UsageError>([&] {
                program.use(std::make_unique<Own>(program.net->parameters(), to::SGDOptions(0.1)));
              }),
              HasSubstr("Own"));
  program.use(std::make_unique<Deciding<FusedSgd>>(program.net->parameters(), to::SGDOptions(0.1)));
}

// What no group brings comes from the defaults, what one brings from nowhere else.
template <class Optimizer>
void expect_undecayed(Optimizer& optimizer) {
  const auto decay = [&](std::size_t group) {
    auto& options = optimizer.param_groups()[group].options();
    if (auto* const sgd = dynamic_cast<to::SGDOptions*>(&options)) return sgd->weight_decay();
    if (auto* const adam = dynamic_cast<to::AdamOptions*>(&options)) return adam->weight_decay();
    return dynamic_cast<LambOptions&>(options).weight_decay();
  };
  EXPECT_EQ(decay(0), 0.25);
  EXPECT_EQ(decay(1), 0);
}
TEST(Groups, KeepTheOptionsThatTheyBring) {
  torch::nn::Linear net(3, 2);
  const auto sgd = to::SGDOptions(0.1).weight_decay(0.25);
  const auto adam = to::AdamOptions(0.1).weight_decay(0.25);
  const auto lamb = LambOptions(0.1).weight_decay(0.25);
  FusedSgd one(decay_groups(*net, sgd), sgd);
  expect_undecayed(one);
  FusedAdam two(decay_groups(*net, adam), adam);
  expect_undecayed(two);
  Lamb three(decay_groups(*net, lamb), lamb);
  expect_undecayed(three);
  for (const char* const name : {"sgd", "lamb", "torch-sgd", "torch-adam"}) {
    const auto made = make_optimizer(name, *net, {.weight_decay = 0.25, .decay_all = false});
    expect_undecayed(*made);
    if (auto* const torchs = dynamic_cast<to::SGD*>(made.get())) {
      FusedSgd adopting(*torchs);
      expect_undecayed(adopting);
    }
  }
  const at::Tensor late = leaf(at::zeros({2}));
  three.add_param_group(to::OptimizerParamGroup(Tensors{late}, std::make_unique<LambOptions>(0.5)));
  EXPECT_EQ(three.param_groups()[2].options().get_lr(), 0.5);
}

// A slot of a later group that does not fit is found before an earlier group has changed.
template <class Optimizer, class Options>
void expect_all_or_nothing(const Options& options) {
  const Tensors both = {leaf(at::ones({3})), leaf(at::ones({4}))};
  std::vector<to::OptimizerParamGroup> groups;
  for (const at::Tensor& parameter : both) {
    groups.emplace_back(Tensors{parameter}, std::make_unique<Options>(options));
    parameter.mutable_grad() = at::ones_like(parameter);
  }
  Optimizer optimizer(groups, options);
  optimizer.step();
  const at::NoGradGuard no_grad;
  const at::Tensor first = both[0].clone();
  both[1].mutable_grad() = at::Tensor();
  both[1].set_data(both[1].to(at::kDouble));
  both[1].mutable_grad() = at::ones_like(both[1]);
  EXPECT_THAT(message_of<UsageError>([&] { optimizer.step(); }), HasSubstr("before its optimizer has made"));
  EXPECT_TRUE(both[0].equal(first));
  both[1].mutable_grad() = at::Tensor();
  optimizer.step();
  EXPECT_FALSE(both[0].equal(first));
}
TEST(Slots, AreLookedAtBeforeAnythingChanges) {
  expect_all_or_nothing<FusedSgd>(to::SGDOptions(0.1).momentum(0.9));
  expect_all_or_nothing<FusedAdam>(to::AdamOptions(0.1));
  expect_all_or_nothing<FusedAdamW>(to::AdamWOptions(0.1).amsgrad(true));
  expect_all_or_nothing<Lamb>(LambOptions(0.1));
}

// Adam's bits depend on whose kernels computed them; plain SGD's on a CPU do not.
TEST(Kernels, AreRecordedWhereTheBitsDependOnThem) {
  const auto recorded = [](const char* name) {
    const Attributes attributes = Program(name).state->attributes();
    const auto* const kernels = attributes.find("environment.optimizer.kernels");
    return kernels ? std::get<std::string>(kernels->value) : std::string("nothing");
  };
  EXPECT_EQ(recorded("adam"), "fused");
  EXPECT_EQ(recorded("torch-adam"), "torch::optim");
  EXPECT_EQ(recorded("adamw"), "fused");
  EXPECT_EQ(recorded("sgd"), "nothing");
  EXPECT_EQ(recorded("torch-sgd"), "nothing");
}

// Whoever went on with an optimizer whose slots another has would lose them without a word.
TEST(Adoption, OfSlotsThatAreElsewhereIsRefused) {
  const Tensors parameters = {leaf(at::ones({3}))};
  parameters[0].mutable_grad() = at::ones({3});
  const auto options = to::AdamOptions(0.1);
  to::Adam torchs(parameters, options);
  torchs.step();
  FusedAdam fused(torchs);
  EXPECT_THAT(message_of<UsageError>([&] { FusedAdam second(torchs); }), HasSubstr("another optimizer has"));
  EXPECT_THAT(message_of<UsageError>([&] { fused.give_back(fused); }), HasSubstr("to itself"));
  fused.give_back(torchs);
  EXPECT_THAT(message_of<UsageError>([&] { fused.give_back(torchs); }), HasSubstr("another optimizer has"));
  const at::Tensor before = parameters[0].detach().clone();
  EXPECT_THAT(message_of<UsageError>([&] { fused.step(); }), HasSubstr("another optimizer has"));
  EXPECT_TRUE(parameters[0].equal(before));
  torchs.step();
  EXPECT_EQ(static_cast<to::AdamParamState&>(*torchs.state().begin()->second).step(), 2);
}

TEST(Maximize, TakesNoSlotsThatWentDown) {
  const Tensors parameters = {leaf(at::ones({3}))};
  parameters[0].mutable_grad() = at::ones({3});
  to::SGD down(parameters, to::SGDOptions(0.1).momentum(0.9));
  down.step();
  EXPECT_THAT(message_of<UsageError>([&] { FusedSgd up(down, {.maximize = true}); }),
              HasSubstr("would go on up"));
  EXPECT_EQ(down.state().size(), 1U);
}

TEST(Maximize, IsNotLostInAdoption) {
  const Tensors parameters = {leaf(at::ones({3}))};
  FusedSgd up(parameters, to::SGDOptions(0.1), {.maximize = true});
  to::SGD torchs(parameters, to::SGDOptions(0.1));
  EXPECT_THAT(message_of<UsageError>([&] { up.give_back(torchs); }), HasSubstr("would go on down"));
  EXPECT_THAT(message_of<UsageError>([&] { FusedSgd adopting(static_cast<to::SGD&>(up)); }),
              HasSubstr("FusedOptions::maximize"));
  FusedSgd adopting(static_cast<to::SGD&>(up), {.maximize = true});
  FusedSgd back(parameters, to::SGDOptions(0.1), {.maximize = true});
  adopting.give_back(back);
}

TEST(Maximize, GoesUpAndIsRecorded) {
  Program down("sgd");
  Program up("sgd");
  up.use(
      std::make_unique<FusedSgd>(up.net->parameters(), to::SGDOptions(0.05), FusedOptions{.maximize = true}));
  down.use(std::make_unique<FusedSgd>(down.net->parameters(), to::SGDOptions(0.05)));
  const at::Tensor start = up.net->parameters()[0].detach().clone();
  torch::manual_seed(2);
  up.train(1);
  torch::manual_seed(2);
  down.train(1);
  EXPECT_TRUE((up.net->parameters()[0] + down.net->parameters()[0]).allclose(start * 2));
  const auto snapshot = stage(*up.state);
  EXPECT_THAT(message_of<RefusedError>(
                  [&] { down.state->check(snapshot->layout->tensors(), snapshot->attributes, {}); }),
              HasSubstr("optimizer.maximize"));
}

}  // namespace
}  // namespace holdfast::test
