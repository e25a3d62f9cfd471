// LAMB's formula, clipping, averaged weights, decay groups, channels_last; what optimizers refuse.
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <limits>

#include "holdfast/base/error.h"
#include "holdfast/optim/channels_last.h"
#include "holdfast/optim/clip.h"
#include "holdfast/optim/decay_groups.h"
#include "holdfast/optim/ema.h"
#include "holdfast/optim/fused_adam.h"
#include "holdfast/optim/fused_sgd.h"
#include "holdfast/optim/lamb.h"
#include "holdfast/optim/make_optimizer.h"
#include "holdfast/state/train_state.h"
#include "unit/state/modules.h"
#include "unit/state/staging.h"

namespace holdfast::test { namespace {

using ::testing::HasSubstr;
namespace to = torch::optim;
using Tensors = std::vector<at::Tensor>;

at::Tensor learned(const at::Tensor& values) { return values.detach().requires_grad_(); }

// As LibTorch lists the parameters of a module that is registered twice.
TEST(Gradients, OfAParameterThatIsListedTwiceCountOnce) {
  const at::Tensor one = learned(at::ones({4}));
  one.mutable_grad() = at::full({4}, 3.0);
  const to::SGD optimizer({one, one}, to::SGDOptions(0.1));
  EXPECT_EQ(gradients_of(optimizer).size(), 1U);
  EXPECT_EQ(grad_norm(gradients_of(optimizer)).item<float>(), 6);
}

// The header's formula, element by element in double.
struct LambFormula {
  std::vector<double> x, m, v;
  std::int64_t t = 0;
  // `norm`: of all gradients of all tensors.
  void update(std::vector<double> g, const LambOptions& options, double norm) {
    const auto [beta1, beta2] = options.betas();
    const auto filled = [&](double beta) {
      return options.bias_correction() ? 1 - std::pow(beta, static_cast<double>(t)) : 1;
    };
    ++t;
    std::vector<double> r(x.size());
    double weights = 0, updates = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (options.max_grad_norm() > 0 && norm > options.max_grad_norm())
        g[i] /= norm / options.max_grad_norm();
      if (!options.decoupled()) g[i] += options.weight_decay() * x[i];
      m[i] = beta1 * m[i] + (options.grad_averaging() ? 1 - beta1 : 1) * g[i];
      v[i] = beta2 * v[i] + (1 - beta2) * g[i] * g[i];
      r[i] = m[i] / filled(beta1) / (std::sqrt(v[i] / filled(beta2)) + options.eps());
      if (options.decoupled()) r[i] += options.weight_decay() * x[i];
      weights += x[i] * x[i];
      updates += r[i] * r[i];
    }
    double ratio = std::sqrt(weights) / std::sqrt(updates);
    if (options.most_norm() > 0)
      ratio = std::min(std::sqrt(weights), options.most_norm()) / std::sqrt(updates);
    if (weights == 0 || updates == 0) ratio = 1;
    if (options.weight_decay() == 0 && !options.adapt_all()) ratio = 1;
    for (std::size_t i = 0; i < x.size(); ++i) x[i] -= options.lr() * ratio * r[i];
  }
};

std::vector<double> numbers(const at::Tensor& tensor) {
  const at::Tensor wide = tensor.detach().to(at::kDouble).contiguous().view(-1);
  return {wide.const_data_ptr<double>(), wide.const_data_ptr<double>() + wide.numel()};
}

// What a GPU does, on the CPU: counts, rate and skip are in memory.
struct LambAsOnADevice final : Lamb {
  using Lamb::Lamb;
  bool decides_on(at::Device) const override { return true; }
};

// `change` makes the variant of each group.
template <class F>
void expect_formula(const char* what, F&& change, bool maximize = false) {
  for (const bool device : {false, true}) {
    for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
      SCOPED_TRACE(std::string(what) + " " + at::toString(type) + (device ? " as on a device" : ""));
      torch::manual_seed(1);
      auto decayed = LambOptions(0.02).weight_decay(0.1).betas({0.8, 0.99});
      LambOptions excluded(0.02), adapted = LambOptions(0.02).adapt_all(true);
      for (LambOptions* const options : {&decayed, &excluded, &adapted}) change(*options);
      const Tensors all = {learned(at::randn({5, 7}, type)), learned(at::zeros({33}, type)),
                           learned(at::randn({12}, type)), learned(at::randn({3, 4}, type).t())};
      const LambOptions* const options[] = {&decayed, &decayed, &excluded, &adapted};
      std::vector<to::OptimizerParamGroup> groups;
      std::vector<LambFormula> formulas;
      for (std::size_t i = 0; i < all.size(); ++i) {
        groups.emplace_back(Tensors{all[i]}, std::make_unique<LambOptions>(*options[i]));
        const auto count = static_cast<std::size_t>(all[i].numel());
        formulas.push_back({numbers(all[i]), std::vector<double>(count), std::vector<double>(count)});
      }
      std::unique_ptr<Lamb> lamb;
      if (device) lamb = std::make_unique<LambAsOnADevice>(groups, excluded, FusedOptions{maximize});
      if (!device) lamb = std::make_unique<Lamb>(groups, excluded, FusedOptions{maximize});
      const at::Tensor scale = at::full({1}, 4.0);
      for (int step = 0; step < 50; ++step) {
        double squares = 0;
        for (const at::Tensor& one : all) {
          const double size = step % 3 == 0 ? 0.01 : 1;  // every third one is below the limit
          one.mutable_grad() = at::randn(one.sizes(), type) * size;
          squares += one.grad().to(at::kDouble).square().sum().item<double>();
        }
        for (std::size_t i = 0; i < all.size(); ++i) {
          std::vector<double> up = numbers(all[i].grad());
          if (maximize) {
            for (double& number : up) number = -number;
          }
          formulas[i].update(up, *options[i], std::sqrt(squares));
        }
        const bool scaled = step % 2 == 1;
        if (scaled) {
          for (const at::Tensor& one : all) one.mutable_grad().mul_(4);
        }
        lamb->step_scaled(scaled ? std::optional(scale) : std::nullopt, std::nullopt);
      }
      for (std::size_t i = 0; i < all.size(); ++i) {
        const std::vector<double> ours = numbers(all[i]);
        for (std::size_t k = 0; k < ours.size(); ++k) {
          EXPECT_NEAR(ours[k], formulas[i].x[k], type == at::kDouble && !device ? 1e-13 : 2e-5) << i;
        }
      }
    }
  }
}

TEST(Lamb, FollowsTheFormulaInEveryVariant) {
  expect_formula("as it comes", [](LambOptions&) {});
  expect_formula(
      "up", [](LambOptions&) {}, true);
  expect_formula("clipped", [](LambOptions& options) { options.max_grad_norm(1); });
  expect_formula("summed", [](LambOptions& options) { options.grad_averaging(false); });
  expect_formula("uncorrected", [](LambOptions& options) { options.bias_correction(false); });
  expect_formula("L2", [](LambOptions& options) { options.decoupled(false).max_grad_norm(1); });
  expect_formula(
      "L2 up", [](LambOptions& options) { options.decoupled(false); }, true);
  expect_formula("phi", [](LambOptions& options) { options.most_norm(2); });
}

TEST(Lamb, ClipsAllGroupsTogetherOrNot) {
  const Tensors one = {learned(at::zeros({2}))}, other = {learned(at::zeros({2}))};
  std::vector<to::OptimizerParamGroup> groups;
  groups.emplace_back(one, std::make_unique<LambOptions>(LambOptions(1).max_grad_norm(1)));
  groups.emplace_back(other, std::make_unique<LambOptions>(LambOptions(1)));
  Lamb lamb(groups, LambOptions(1));
  one[0].mutable_grad() = at::ones({2});
  EXPECT_THAT(message_of<UsageError>([&] { lamb.step(); }), HasSubstr("every group the same max_grad_norm"));
  EXPECT_TRUE(one[0].eq(0).all().item<bool>());
  EXPECT_THROW(Lamb(one, LambOptions(1).max_grad_norm(-1)), UsageError);
}

TEST(Clip, NormIsTorchsBitForBit) {
  torch::manual_seed(1);
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    for (const double limit : {0.5, 1e6}) {
      for (const int count : {1, 12}) {
        Tensors parameters, gradients;
        for (int i = 0; i < count; ++i) {
          const std::int64_t rows = 1 + i * 37;
          parameters.push_back(learned(at::zeros({rows, 3}, type)));
          at::Tensor gradient = at::randn({rows, 3}, type);
          if (i % 3 == 2) gradient = at::randn({3, rows}, type).t();
          parameters.back().mutable_grad() = gradient;
          gradients.push_back(gradient.clone());
          gradients.emplace_back();  // undefined
        }
        const double theirs = torch::nn::utils::clip_grad_norm_(parameters, limit);
        EXPECT_EQ(clip_grad_norm(gradients, limit).item<double>(), theirs);
        for (std::size_t i = 0; i < parameters.size(); ++i) {
          EXPECT_TRUE(gradients[2 * i].equal(parameters[i].grad())) << i;
        }
      }
    }
  }
}

TEST(Clip, MixedTypesAndNoneAtAll) {
  Tensors mixed = {at::full({3}, 2.0), at::full({1}, 2.0, at::kDouble)};
  EXPECT_NEAR(clip_grad_norm(mixed, 1).item<double>(), 4, 1e-6);
  const at::Tensor large = grad_norm({at::full({4}, 6e4, at::kHalf)});
  EXPECT_NEAR(large.item<double>(), 1.2e5, 1e2) << "more than half can hold";
  EXPECT_NEAR(mixed[0][0].item<double>(), 0.5, 1e-6);
  EXPECT_NEAR(mixed[1][0].item<double>(), 0.5, 1e-6);
  Tensors none = {at::Tensor()};
  EXPECT_EQ(clip_grad_norm(none, 1).item<double>(), 0);
  EXPECT_THROW(clip_grad_norm(none, -1), UsageError);
  Tensors infinite = {at::full({2}, std::numeric_limits<float>::infinity())};
  EXPECT_TRUE(std::isinf(clip_grad_norm(infinite, 1).item<double>()));
  Tensors sparse = {at::ones({2}).to_sparse()};
  EXPECT_THAT(message_of<UsageError>([&] { clip_grad_norm(sparse, 1); }), HasSubstr("sparse"));
}

TEST(Clip, ValueIsTorchs) {
  torch::manual_seed(2);
  const at::Tensor parameter = learned(at::zeros({101}));
  parameter.mutable_grad() = at::randn({101});
  parameter.grad()[5] = std::numeric_limits<float>::quiet_NaN();
  Tensors ours = {parameter.grad().clone(), at::Tensor()};
  torch::nn::utils::clip_grad_value_(parameter, 0.5);
  clip_grad_value(ours, 0.5);
  EXPECT_TRUE(ours[0].allclose(parameter.grad(), 0, 0, /*equal_nan=*/true));
  EXPECT_TRUE(ours[0][5].isnan().item<bool>());
}

struct Averaged {
  explicit Averaged(EmaOptions options = {.decay = 0.9}) {
    net.parameter("weight", at::ones({3}, at::kDouble)).buffer("count", at::zeros({1}, at::kLong));
    net.buffer("mean", at::zeros({2}));
    ema.emplace(net, options);
  }
  at::Tensor weight() { return net.named_parameters()["weight"]; }
  void set(double value) {
    const at::NoGradGuard no_grad;
    weight().fill_(value);
    net.named_buffers()["count"].add_(1);
    net.named_buffers()["mean"].fill_(value);
  }
  double average() {
    const auto swapped = ema->swap_in();
    return weight()[0].item<double>();
  }
  Bag net;
  std::optional<Ema> ema;
};

TEST(Ema, FollowsItsFormula) {
  Averaged warm, cold({.decay = 0.9, .warm_up = false});
  double expected_warm = 1, expected_cold = 1;
  for (int n = 0; n < 200; ++n) {
    for (Averaged* one : {&warm, &cold}) {
      one->set(n);
      one->ema->update();
    }
    const double d = std::min(0.9, (1.0 + n) / (10.0 + n));
    expected_warm += (1 - d) * (n - expected_warm);
    expected_cold += (1 - 0.9) * (n - expected_cold);
    ASSERT_NEAR(warm.average(), expected_warm, 1e-12);
    ASSERT_NEAR(cold.average(), expected_cold, 1e-12);
  }
  EXPECT_EQ(warm.ema->updates(), 200);
  EXPECT_THROW(Ema(warm.net, {.decay = 1.5}), UsageError);
}

TEST(Ema, ASkippedUpdateDoesNotAdvance) {
  Averaged one;
  one.set(5);
  one.ema->update(at::zeros({1}));
  const double average = one.average();
  one.set(50);
  for (const double found : {1.0, 3.0}) {  // a sum over ranks
    one.ema->update(at::full({1}, found));
    EXPECT_EQ(one.average(), average);
    EXPECT_EQ(one.ema->updates(), 1);
  }
}

TEST(Ema, BeginsAgainWithWeightsThatCameLater) {
  Averaged one, fresh;
  for (int i = 0; i < 3; ++i) {
    one.set(i);
    one.ema->update();
  }
  one.set(40);
  one.ema->restart();
  EXPECT_EQ(one.average(), 40);
  EXPECT_EQ(one.ema->updates(), 0);
  {
    const auto swapped = one.ema->swap_in();
    EXPECT_EQ(one.net.named_buffers()["mean"][0].item<double>(), 40);
    EXPECT_THROW(one.ema->restart(), UsageError);
  }
  one.set(50);
  one.ema->update();
  EXPECT_NEAR(one.average(), 40 + 0.9 * 10, 1e-12) << "the first update's decay is a tenth again";
}

TEST(Ema, SwapsInAndBack) {
  Averaged one;
  one.set(3);
  one.ema->update();
  one.set(7);
  const void* const storage = one.weight().data_ptr();
  {
    const auto swapped = one.ema->swap_in();
    EXPECT_NE(one.weight()[0].item<double>(), 7);
    EXPECT_EQ(one.net.named_buffers()["count"].item<std::int64_t>(), 1) << "as of the last update";
    EXPECT_EQ(one.net.named_buffers()["mean"][0].item<double>(), 3);
    EXPECT_TRUE(one.weight().requires_grad());
    EXPECT_THROW(static_cast<void>(one.ema->swap_in()), UsageError);
    EXPECT_THROW(one.ema->update(), UsageError);
    Ema another(one.net);
    EXPECT_THROW(static_cast<void>(another.swap_in()), UsageError);
  }
  EXPECT_EQ(one.weight()[0].item<double>(), 7);
  EXPECT_EQ(one.weight().data_ptr(), storage);
  EXPECT_EQ(one.net.named_buffers()["count"].item<std::int64_t>(), 2);
}

TEST(Ema, ResumedAveragesAreTheSame) {
  const auto program = [](TrainState& state, Averaged& one) {
    state.add("model", one.net);
    state.add("ema", *one.ema);
  };
  Averaged first, second, other({.decay = 0.5});
  TrainState before, after, changed;
  program(before, first);
  program(after, second);
  program(changed, other);
  for (int i = 0; i < 3; ++i) {
    first.set(i);
    first.ema->update();
  }
  const auto snapshot = stage(before);
  EXPECT_TRUE(holds(*snapshot, "ema/weight"));
  after.load(*snapshot, {});
  EXPECT_EQ(digest(after), digest(*snapshot));
  for (Averaged* one : {&first, &second}) {
    one->set(9);
    one->ema->update();
  }
  EXPECT_EQ(digest(after), digest(before));
  EXPECT_THAT(message_of<RefusedError>([&] { changed.load(*snapshot, {}); }), HasSubstr("ema.decay"));
}

TEST(DecayGroups, LeaveBiasesAndNormsAlone) {
  Bag net;
  const auto conv = net.child("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 4, 3)));
  const auto norm = net.child("norm", torch::nn::BatchNorm2d(4));
  const auto layer = net.child("layer", torch::nn::LayerNorm(torch::nn::LayerNormOptions({4, 5})));
  const auto fc = net.child("fc", torch::nn::Linear(4, 2));
  net.parameter("scale", at::ones({}));
  net.parameter("table", at::ones({3, 2}));
  net.parameter("bias", at::ones({1, 4}));
  const auto groups = decay_groups(net, to::AdamWOptions(0.5).weight_decay(0.3));
  const auto named = [&](std::size_t g) {
    std::vector<std::string> names;
    for (const at::Tensor& parameter : groups[g].params()) {
      for (const auto& known : net.named_parameters()) {
        if (known.value().is_same(parameter)) names.push_back(known.key());
      }
    }
    return names;
  };
  EXPECT_THAT(named(0), ::testing::UnorderedElementsAre("conv.weight", "fc.weight", "table"));
  EXPECT_THAT(named(1),
              ::testing::UnorderedElementsAre("conv.bias", "norm.weight", "norm.bias", "layer.weight",
                                              "layer.bias", "fc.bias", "scale", "bias"));
  EXPECT_EQ(static_cast<const to::AdamWOptions&>(groups[0].options()).weight_decay(), 0.3);
  EXPECT_EQ(static_cast<const to::AdamWOptions&>(groups[1].options()).weight_decay(), 0);
  EXPECT_EQ(groups[1].options().get_lr(), 0.5);
}

TEST(ChannelsLast, LaysOutParametersAndSlotsInPlace) {
  const auto format = at::MemoryFormat::ChannelsLast;
  const auto made = [](bool last) {
    torch::manual_seed(4);
    torch::nn::Conv2d conv(torch::nn::Conv2dOptions(3, 4, 3));
    if (last) to_channels_last(*conv);
    return conv;
  };
  const auto train = [&](torch::nn::Conv2d& conv, FusedAdam& optimizer, int steps) {
    for (int i = 0; i < steps; ++i) {
      conv->weight.mutable_grad() = at::full({4, 3, 3, 3}, 0.1 * i).cumsum(1);
      conv->bias.mutable_grad() = at::ones({4});
      optimizer.step();
    }
  };
  auto one = made(false), other = made(true);
  EXPECT_TRUE(other->weight.is_contiguous(format));
  EXPECT_TRUE(one->weight.equal(other->weight));
  FusedAdam first(one->parameters(), to::AdamOptions(0.1)), second(other->parameters(), to::AdamOptions(0.1));
  train(one, first, 3);
  train(other, second, 3);
  const auto* const same = one->weight.unsafeGetTensorImpl();
  to_channels_last(*one);
  to_channels_last(first);
  const void* const storage = one->weight.data_ptr();
  to_channels_last(*one);
  EXPECT_EQ(one->weight.data_ptr(), storage) << "idempotent";
  EXPECT_EQ(one->weight.unsafeGetTensorImpl(), same);
  EXPECT_TRUE(one->weight.requires_grad());
  EXPECT_TRUE(one->weight.grad().is_contiguous(format));
  for (auto& [key, state] : first.state()) {
    const auto& slot = static_cast<to::AdamParamState&>(*state).exp_avg();
    if (slot.dim() == 4) {
      EXPECT_TRUE(slot.is_contiguous(format));
    }
  }
  train(one, first, 3);
  train(other, second, 3);
  EXPECT_TRUE(one->weight.allclose(other->weight));

  TrainState saved, loaded;
  saved.add("model", *one);
  saved.add("optimizer", first);
  const auto snapshot = stage(saved);
  auto third = made(false);
  FusedAdam resumed(third->parameters(), to::AdamOptions(0.1));
  loaded.add("model", *third);
  loaded.add("optimizer", resumed);
  loaded.load(*snapshot, {});
  EXPECT_TRUE(third->weight.is_contiguous(format));
  train(third, resumed, 2);
  train(one, first, 2);
  EXPECT_TRUE(third->weight.equal(one->weight));
}

TEST(Refusals, NameTheParameterAndTheRemedy) {
  const at::Tensor good = learned(at::ones({3})), sparse = learned(at::ones({3}));
  good.mutable_grad() = at::ones({3});
  sparse.mutable_grad() = at::ones({3}).to_sparse();
  FusedSgd optimizer({good, sparse}, to::SGDOptions(0.1));
  const std::string text = message_of<UsageError>([&] { optimizer.step(); });
  EXPECT_THAT(text, HasSubstr("parameter 1 of group 0, of shape [3]"));
  EXPECT_THAT(text, HasSubstr("sparse(false)"));
  EXPECT_TRUE(good.equal(at::ones({3}))) << "nothing has been changed";

  const at::Tensor complex = learned(at::ones({2}, at::kComplexFloat));
  complex.mutable_grad() = at::ones({2}, at::kComplexFloat);
  FusedAdamW adamw({complex}, to::AdamWOptions(0.1));
  EXPECT_THAT(message_of<UsageError>([&] { adamw.step(); }), HasSubstr("ComplexFloat"));

  const at::Tensor converted = learned(at::ones({2}));
  converted.mutable_grad() = at::ones({2});
  FusedAdam adam({converted}, to::AdamOptions(0.1));
  adam.step();
  converted.set_data(at::ones({2}, at::kDouble));
  converted.mutable_grad() = at::Tensor();
  converted.mutable_grad() = at::ones({2}, at::kDouble);
  EXPECT_THAT(message_of<UsageError>([&] { adam.step(); }), HasSubstr("convert the module before"));
  EXPECT_THAT(message_of<UsageError>([&] { adam.step_scaled({}, at::ones({1}, at::kDouble)); }),
              HasSubstr("found_inf must be one number of type float"));
}

TEST(Refusals, OfOptionsThatCannotBe) {
  const Tensors one = {learned(at::ones({3}))};
  EXPECT_THROW(FusedSgd(one, to::SGDOptions(-1)), UsageError);
  EXPECT_THROW(FusedSgd(one, to::SGDOptions(1).nesterov(true)), UsageError);
  EXPECT_THROW(FusedSgd(one, to::SGDOptions(1).momentum(0.9).dampening(0.1).nesterov(true)), UsageError);
  EXPECT_THROW(FusedAdam(one, to::AdamOptions(1).betas({1, 0.9})), UsageError);
  EXPECT_THROW(FusedAdamW(one, to::AdamWOptions(1).eps(-1)), UsageError);
  EXPECT_THROW(Lamb(one, LambOptions(1).weight_decay(-1)), UsageError);
  std::vector<to::OptimizerParamGroup> groups;
  groups.emplace_back(one, std::make_unique<to::RMSpropOptions>(0.1));
  EXPECT_THAT(message_of<UsageError>([&] { FusedSgd(groups, to::SGDOptions(1)); }),
              HasSubstr("another optimizer"));
  EXPECT_THAT(message_of<UsageError>([&] { make_optimizer("sdg", *torch::nn::Linear(1, 1), {}); }),
              HasSubstr("sgd, adam, adamw, lamb"));
}

TEST(Closures, AreCalledWithGradients) {
  const at::Tensor parameter = learned(at::full({3}, 2.0));
  for (const int kind : {0, 1, 2, 3}) {
    std::unique_ptr<to::Optimizer> optimizer;
    if (kind == 0) optimizer = std::make_unique<FusedSgd>(Tensors{parameter}, to::SGDOptions(0.1));
    if (kind == 1) optimizer = std::make_unique<FusedAdam>(Tensors{parameter}, to::AdamOptions(0.1));
    if (kind == 2) optimizer = std::make_unique<FusedAdamW>(Tensors{parameter}, to::AdamWOptions(0.1));
    if (kind == 3) optimizer = std::make_unique<Lamb>(Tensors{parameter}, LambOptions(0.1));
    const at::Tensor before = parameter.detach().clone();
    const auto version = parameter._version();
    const at::NoGradGuard no_grad;
    const at::Tensor loss = optimizer->step([&] {
      optimizer->zero_grad();
      at::Tensor value = parameter.square().sum();
      value.backward();
      return value;
    });
    EXPECT_EQ(loss.item<double>(), before.square().sum().item<double>());
    EXPECT_TRUE(parameter.lt(before).all().item<bool>()) << kind;
    EXPECT_GT(parameter._version(), version) << "autograd knows of the change";
  }
}

}}  // namespace holdfast::test
