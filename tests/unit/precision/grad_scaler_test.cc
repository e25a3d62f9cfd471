#include "holdfast/precision/grad_scaler.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <bit>
#include <cmath>
#include <limits>
#include <map>

#include "holdfast/base/error.h"
#include "holdfast/precision/autocast.h"
#include "holdfast/state/train_state.h"
#include "unit/precision/recorded_scaler.h"
#include "unit/state/staging.h"

namespace holdfast::test { namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::uint32_t bits(float value) { return std::bit_cast<std::uint32_t>(value); }
std::uint32_t bits(const at::Tensor& value) { return bits(value.item<float>()); }
std::array<std::uint32_t, 3> bits_of_three(const at::Tensor& values) {
  return {bits(values[0]), bits(values[1]), bits(values[2])};
}

// One update of door 2, for an optimizer that does not look at found_inf itself. True: it was left out.
bool update(GradScaler& scaler, torch::optim::Optimizer& optimizer) {
  const bool finite = scaler.unscale(optimizer).item<float>() == 0;
  if (finite) optimizer.step();
  scaler.update();
  return !finite;
}

// record_grad_scaler.py's formula.
at::Tensor gradient(int step, const std::map<int, float>& infs) {
  std::vector<at::Tensor> values;
  for (int i = 0; i < 3; ++i) {
    values.push_back(at::full({}, static_cast<float>((step * 7 + i * 5) % 11 - 5)) / 3);
  }
  at::Tensor gradient = at::stack(values);
  if (const auto found = infs.find(step); found != infs.end()) gradient[step % 3] = found->second;
  return gradient;
}

TEST(GradScaler, AgreesWithTorchAmpStepByStep) {
  const std::map<int, float> infs = {
      {4, kInf}, {5, -kInf}, {9, std::numeric_limits<float>::quiet_NaN()}, {13, kInf}, {20, kInf}};
  at::Tensor w = at::ones({3});
  w[1] = -0.5;
  w[2] = 0.25;
  w.requires_grad_();
  torch::optim::SGD optimizer({w}, torch::optim::SGDOptions(0.1).momentum(0.9));
  GradScaler scaler(at::kCPU,
                    {.init_scale = 3000, .growth_factor = 1.9, .backoff_factor = 0.45, .growth_interval = 3});
  std::int64_t skipped = 0;
  for (int step = 0; step < static_cast<int>(kOddFactors.size()); ++step) {
    SCOPED_TRACE(step);
    const RecordedStep& recorded = kOddFactors.at(static_cast<std::size_t>(step));
    optimizer.zero_grad();
    scaler.scale((w * gradient(step, infs)).sum()).backward();
    EXPECT_EQ(update(scaler, optimizer), recorded.skipped);
    if (!recorded.skipped) {
      EXPECT_EQ(bits_of_three(w.grad()), recorded.gradient);
    }
    // Not to the bit: a processor without fused multiply-add rounds the momentum's sum once more.
    for (int i = 0; i < 3; ++i) {
      const auto expected = std::bit_cast<float>(recorded.weight.at(static_cast<std::size_t>(i)));
      EXPECT_NEAR(w[i].item<float>(), expected, 1e-5 * (1 + std::abs(expected)));
    }
    EXPECT_EQ(bits(scaler.scale_tensor()), recorded.scale);
    skipped += recorded.skipped ? 1 : 0;
    EXPECT_EQ(scaler.skipped(), skipped);
  }
  EXPECT_EQ(skipped, 5);
}

TEST(GradScaler, ItsDefaultsAreTorchAmps) {
  GradScaler scaler(at::kCPU);
  std::vector<std::pair<int, std::uint32_t>> changes;
  const at::Tensor gradients = at::ones({1});
  float known = 65536;
  EXPECT_EQ(scaler.scale_tensor().item<float>(), known);
  for (int step = 0; step < 9000; ++step) {
    gradients.fill_(step == 0 || step == 1 || step == 3000 || step == 5100 ? kInf : 1);
    scaler.unscale({gradients});
    scaler.update();
    const float scale = scaler.scale_tensor().item<float>();
    if (scale != known) changes.emplace_back(step, bits(scale));
    known = scale;
  }
  std::vector<std::pair<int, std::uint32_t>> recorded;
  for (const RecordedChange& change : kDefaults) {
    if (change.step > 0 || change.scale != bits(65536)) recorded.emplace_back(change.step, change.scale);
  }
  EXPECT_EQ(changes, recorded);
}

TEST(GradScaler, CallsOutOfOrderAreErrors) {
  GradScaler scaler(at::kCPU);
  const at::Tensor gradient = at::full({2}, 65536.0);
  EXPECT_THROW(scaler.update(), UsageError);
  scaler.unscale({gradient});
  EXPECT_THROW(scaler.unscale({gradient}), UsageError) << "would divide twice";
  EXPECT_EQ(gradient[0].item<float>(), 1);
  EXPECT_THROW(scaler.scale(gradient.sum()), UsageError);
  TrainState state;
  state.add("scaler", scaler);
  EXPECT_THROW(stage(state), UsageError) << "a save that would lose the update";
  scaler.update();
  EXPECT_THROW(scaler.update(), UsageError);
  stage(state);
}

TEST(GradScaler, LooksAtEveryGradientThatIsThere) {
  GradScaler scaler(at::kCPU, {.init_scale = 4});
  const at::Tensor first = at::full({2}, 8.0), last = at::full({3}, 2.0, at::kDouble);
  EXPECT_EQ(scaler.unscale({first, at::Tensor(), last}).item<float>(), 0);
  EXPECT_EQ(first[1].item<float>(), 2);
  EXPECT_EQ(last[2].item<double>(), 0.5);
  scaler.update();
  last[2] = -kInf;
  EXPECT_EQ(scaler.unscale({first, last}).item<float>(), 1);
  EXPECT_EQ(scaler.found_inf().item<float>(), 1);
  scaler.update();
  EXPECT_EQ(scaler.scale_tensor().item<float>(), 2);
  EXPECT_EQ(scaler.unscale({first}).item<float>(), 0) << "an earlier inf is forgotten";
  scaler.update();
  EXPECT_EQ(scaler.unscale(std::vector<at::Tensor>()).item<float>(), 0);
}

// As LibTorch lists the parameters of a module that is registered twice.
TEST(GradScaler, AGradientThatIsListedTwiceIsDividedOnce) {
  at::Tensor w = at::ones({3}).requires_grad_();
  w.mutable_grad() = at::full({3}, 8.0);
  const torch::optim::SGD optimizer({w, w}, torch::optim::SGDOptions(0.1));
  GradScaler scaler(at::kCPU, {.init_scale = 4});
  EXPECT_EQ(scaler.unscale(optimizer).item<float>(), 0);
  EXPECT_TRUE(w.grad().equal(at::full({3}, 2.0))) << w.grad();
}

TEST(GradScaler, ASumOverRanksIsOneSkip) {
  GradScaler scaler(at::kCPU, {.init_scale = 4});
  scaler.unscale({at::full({2}, kInf)});
  scaler.found_inf().mul_(3);
  scaler.update();
  EXPECT_EQ(scaler.skipped(), 1);
  EXPECT_EQ(scaler.scale_tensor().item<float>(), 2);
}

TEST(GradScaler, WhatAnotherRankFoundIsLeftOutHere) {
  GradScaler scaler(at::kCPU, {.init_scale = 64});
  int asked = 0;
  scaler.agree_by([&](at::Tensor& found_inf) {
    ++asked;
    EXPECT_EQ(found_inf.item<float>(), 0);
    found_inf.fill_(1);
  });
  EXPECT_EQ(scaler.unscale(std::vector<at::Tensor>{at::ones({3})}).item<float>(), 1);
  scaler.update();
  EXPECT_EQ(scaler.scale_tensor().item<float>(), 32);
  EXPECT_EQ(scaler.skipped(), 1);
  EXPECT_EQ(asked, 1);
}

TEST(GradScaler, RefusesWhatItCannotUnscale) {
  GradScaler scaler(at::kCPU);
  EXPECT_THROW(scaler.unscale({at::ones({2}, at::kHalf)}), UsageError);
  EXPECT_THROW(scaler.unscale({at::ones({2}).to_sparse()}), UsageError);
  EXPECT_THROW(scaler.unscale({at::ones({2}, at::TensorOptions().device(at::kMeta))}), UsageError);
  EXPECT_NO_THROW(scaler.unscale({at::ones({2})})) << "a refused call has begun nothing";
}

TEST(GradScaler, RefusesOptionsThatCannotWork) {
  const auto with = [](const GradScalerOptions& options) { return GradScaler(at::kCPU, options); };
  EXPECT_THROW(with({.init_scale = 0}), UsageError);
  EXPECT_THROW(with({.init_scale = kInf}), UsageError);
  EXPECT_THROW(with({.init_scale = 1e39}), UsageError) << "no float";
  EXPECT_THROW(with({.growth_factor = 1}), UsageError);
  EXPECT_THROW(with({.backoff_factor = 1}), UsageError);
  EXPECT_THROW(with({.backoff_factor = 0}), UsageError);
  EXPECT_THROW(with({.growth_interval = 0}), UsageError);
}

TEST(GradScaler, GoesOnFromACheckpointWhereItWas) {
  const GradScalerOptions options{.init_scale = 1024, .growth_interval = 3};
  const auto steps = [](GradScaler& scaler, int from, int to) {
    for (int step = from; step < to; ++step) {
      scaler.unscale({at::full({1}, step % 5 == 1 ? kInf : 1)});
      scaler.update();
    }
  };
  GradScaler straight(at::kCPU, options);
  TrainState whole;
  whole.add("scaler", straight);
  steps(straight, 0, 17);

  for (int cut = 0; cut < 17; ++cut) {
    GradScaler before(at::kCPU, options);
    TrainState saved;
    saved.add("scaler", before);
    steps(before, 0, cut);
    const auto snapshot = stage(saved);

    GradScaler after(at::kCPU, {.init_scale = 7, .growth_interval = 3});
    const void* const place = after.scale_tensor().data_ptr();
    TrainState resumed;
    resumed.add("scaler", after);
    resumed.check(snapshot->layout->tensors(), snapshot->attributes, {});
    resumed.load(*snapshot, {});
    EXPECT_EQ(digest(resumed), digest(*snapshot)) << cut;
    steps(after, cut, 17);
    EXPECT_EQ(digest(resumed), digest(whole)) << cut;
    EXPECT_EQ(after.skipped(), straight.skipped());
    EXPECT_EQ(after.scale_tensor().data_ptr(), place) << "a captured graph keeps its scale";
  }
}

TEST(GradScaler, OtherFactorsAreRefusedOnResume) {
  GradScaler recorded(at::kCPU);
  TrainState saved;
  saved.add("scaler", recorded);
  const auto snapshot = stage(saved);
  GradScaler other(at::kCPU, {.growth_interval = 100});
  TrainState resumed;
  resumed.add("scaler", other);
  const std::string text =
      message_of<RefusedError>([&] { resumed.check(snapshot->layout->tensors(), snapshot->attributes, {}); });
  EXPECT_THAT(text, ::testing::HasSubstr("scaler.growth_interval"));
}

// The loop in grad_scaler.h's head, with an optimizer that waits.
TEST(GradScaler, ALoopOfOnesOwnTrainsInFp16) {
  torch::manual_seed(1);
  torch::nn::Linear net(8, 1);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  GradScaler scaler(at::kCPU, {.init_scale = 16777216.0 * 65536});  // overflows at first
  TrainState state;
  state.add("model", *net);
  state.add("optimizer", optimizer);
  state.add("scaler", scaler);
  const at::Tensor inputs = at::ones({4, 8});
  float loss_value = 0, first_loss = 0;
  for (int i = 0; i < 60; ++i) {
    optimizer.zero_grad();
    at::Tensor loss;
    {
      const AutocastGuard autocast(Precision::fp16, at::kCPU);
      loss = (net->forward(inputs).to(at::kFloat) - 3).square().mean();
    }
    scaler.scale(loss).backward();
    const at::Tensor& found_inf = scaler.unscale(optimizer);
    const bool skipped = found_inf.item<float>() != 0;
    if (!skipped) optimizer.step();
    scaler.update();
    state.advance({.loss = loss.item<float>(), .skipped = skipped});
    loss_value = loss.item<float>();
    if (i == 0) first_loss = loss_value;
  }
  EXPECT_GT(scaler.skipped(), 5);
  EXPECT_EQ(state.skipped(), scaler.skipped());
  EXPECT_LT(loss_value, first_loss / 100);
}

}}  // namespace holdfast::test
