// Fused optimizers beyond their arithmetic: updates that a loss scaler skips, options of groups, slots that
// do not fit.
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include <limits>

#include "holdfast/base/error.h"
#include "holdfast/optim/decay_groups.h"
#include "holdfast/optim/fused_adam.h"
#include "holdfast/optim/fused_sgd.h"
#include "holdfast/optim/lamb.h"
#include "unit/optim/fused_cases.h"
#include "unit/state/staging.h"

namespace holdfast::test { namespace {

using ::testing::HasSubstr;

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

// torch::optim updates a parameter twice that is listed twice; the kernels would compute neither that nor one
// update.
template <class Optimizer, class Options>
void expect_each_once(const Options& options) {
  const at::Tensor one = leaf(at::ones({3})), other = leaf(at::ones({4}));
  EXPECT_THAT(message_of<UsageError>([&] {
                Optimizer({one, other, one}, options);
              }),
              HasSubstr("parameter 2 of group 0 is parameter 0 of group 0 once more"));
  std::vector<to::OptimizerParamGroup> groups;
  groups.emplace_back(Tensors{one}, std::make_unique<Options>(options));
  groups.emplace_back(Tensors{other, one}, std::make_unique<Options>(options));
  EXPECT_THAT(message_of<UsageError>([&] { Optimizer(groups, options); }),
              HasSubstr("parameter 1 of group 1 is parameter 0 of group 0"));
  Optimizer optimizer({one}, options);
  EXPECT_THROW(optimizer.add_param_group(to::OptimizerParamGroup({other, one})), UsageError);
  EXPECT_EQ(optimizer.param_groups().size(), 1U);
  auto impossible = std::make_unique<Options>(options);
  impossible->lr(-1);
  EXPECT_THROW(optimizer.add_param_group(to::OptimizerParamGroup(Tensors{other}, std::move(impossible))),
               UsageError);
  EXPECT_EQ(optimizer.param_groups().size(), 1U);
  optimizer.add_param_group(to::OptimizerParamGroup(Tensors{other}, std::make_unique<Options>(options)));
}
TEST(Parameters, AreListedOnce) {
  expect_each_once<FusedSgd>(to::SGDOptions(0.1));
  expect_each_once<FusedAdam>(to::AdamOptions(0.1));
  expect_each_once<FusedAdamW>(to::AdamWOptions(0.1));
  expect_each_once<Lamb>(LambOptions(0.1));
  const at::Tensor one = leaf(at::ones({3}));
  to::SGD torchs({one, one}, to::SGDOptions(0.1).momentum(0.9));
  one.mutable_grad() = at::ones({3});
  torchs.step();
  EXPECT_THROW(FusedSgd{torchs}, UsageError);
  EXPECT_EQ(torchs.state().size(), 1U) << "it keeps its slots";
}

}}  // namespace holdfast::test
