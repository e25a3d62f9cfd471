// Fused optimizers against torch::optim, update by update: SGD to the bit, Adam within a few units of the
// last place; parameters of sixteen bits.
#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>

#include <cmath>

#include "holdfast/base/error.h"
#include "holdfast/optim/fused_adam.h"
#include "holdfast/optim/fused_sgd.h"
#include "unit/optim/fused_cases.h"

namespace holdfast::test { namespace {

using ::testing::HasSubstr;

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

}}  // namespace holdfast::test
