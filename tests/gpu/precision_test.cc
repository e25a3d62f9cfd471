// Precisions, the scaler and the fused optimizers on a real device. Without a GPU every test is skipped and
// says so.
#include "holdfast/precision/precision.h"

#include <ATen/Context.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <c10/cuda/CUDAFunctions.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/conv.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <cmath>
#include <limits>
#include <vector>

#include "holdfast/optim/fused_adam.h"
#include "holdfast/optim/fused_sgd.h"
#include "holdfast/precision/autocast.h"
#include "holdfast/precision/grad_scaler.h"

namespace holdfast { namespace {

using Tensors = std::vector<at::Tensor>;

class OnCuda : public testing::Test {
 protected:
  void SetUp() override {
    if (c10::cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device here";
    torch::manual_seed(3);
  }
  void TearDown() override { set_math_mode(Precision::fp32); }

  static bool runs(Precision precision) {
    for (const Precision one : supported_on(traits_of(at::Device(at::kCUDA)))) {
      if (one == precision) return true;
    }
    return false;
  }
};

Tensors parameters() {
  Tensors all;
  for (const std::int64_t count : {1, 7, 64, 40'003}) {
    all.push_back(at::randn({count}, at::kCUDA).requires_grad_());
  }
  all.push_back(
      at::randn({9, 5, 3, 3}, at::kCUDA).contiguous(at::MemoryFormat::ChannelsLast).requires_grad_());
  return all;
}

Tensors same_as(const Tensors& others) {
  Tensors all;
  for (const at::Tensor& one : others) all.push_back(one.detach().clone().requires_grad_());
  return all;
}

// How far updates may lie apart.
struct Allowed {
  double ulps;
  double share = 0;                                  // of the update, and the ulps beyond it
  double least = std::numeric_limits<float>::min();  // of the numbers whose ulp is meant
};

// In units of the last place of the largest number that takes part.
double apart(const at::Tensor& one, const at::Tensor& other, const at::Tensor& before,
             const Allowed& allowed) {
  const at::Tensor largest = at::maximum(at::maximum(one.abs(), other.abs()), before.abs()).to(at::kDouble);
  const at::Tensor ulp = largest.clamp_min(allowed.least).log2().floor().exp2() * 0x1p-23;
  const at::Tensor right = other.to(at::kDouble);
  const at::Tensor beyond =
      (one.to(at::kDouble) - right).abs() - allowed.share * (right - before.to(at::kDouble)).abs();
  return (beyond / ulp).max().item<double>();
}

// From equal parameters, update by update; slots go their own ways, and no further apart than they may.
template <class Fused, class Plain, class Options>
void expect_close(const Options& options, const Allowed& allowed) {
  Tensors ours = parameters();
  Tensors theirs = same_as(ours);
  Fused fused(ours, options);
  Plain plain(theirs, options);
  for (int step = 0; step < 20; ++step) {
    Tensors before;
    for (std::size_t i = 0; i < ours.size(); ++i) {
      const at::NoGradGuard no_grad;
      theirs[i].copy_(ours[i]);
      before.push_back(ours[i].detach().clone());
      ours[i].mutable_grad() = at::randn(ours[i].sizes(), ours[i].options().requires_grad(false));
      theirs[i].mutable_grad() = ours[i].grad().clone();
    }
    fused.step();
    plain.step();
    for (std::size_t i = 0; i < ours.size(); ++i) {
      EXPECT_LE(apart(ours[i].detach(), theirs[i].detach(), before[i], allowed), allowed.ulps)
          << "parameter " << i << " after update " << step;
    }
  }
}

TEST_F(OnCuda, FusedOptimizersUpdateAsTorchs) {
  // Slots add their own difference: twice what one update from equal states may differ by.
  expect_close<FusedSgd, torch::optim::SGD>(torch::optim::SGDOptions(0.05).momentum(0.9).weight_decay(1e-2),
                                            {.ulps = 4});
  expect_close<FusedSgd, torch::optim::SGD>(torch::optim::SGDOptions(0.1).momentum(0.8).nesterov(true),
                                            {.ulps = 4});
  // Its betas are floats on a GPU (fused_adam.h). The update's terms are of the learning rate's size, also where
  // they cancel.
  const Allowed adam{.ulps = 8, .share = 2e-5, .least = 1e-3};
  expect_close<FusedAdam, torch::optim::Adam>(torch::optim::AdamOptions(1e-3), adam);
  expect_close<FusedAdamW, torch::optim::AdamW>(torch::optim::AdamWOptions(1e-3).weight_decay(0.1), adam);
}

TEST_F(OnCuda, AnOverflowLeavesTheUpdateOutAndHalvesTheScale) {
  const float inf = std::numeric_limits<float>::infinity();
  Tensors weights = parameters();
  FusedAdamW optimizer(weights, torch::optim::AdamWOptions(1e-2));
  GradScaler scaler(at::Device(at::kCUDA), {.init_scale = 1024, .growth_interval = 2});
  const double scales[] = {1024, 1024, 512, 512, 1024};  // overflow in the second, growth after two good ones
  for (int step = 0; step < 5; ++step) {
    EXPECT_EQ(scaler.scale_tensor().item<double>(), scales[step]) << step;
    const Tensors before = same_as(weights);
    for (at::Tensor& weight : weights) {
      weight.mutable_grad() = at::full_like(weight.detach(), 3 * scales[step]);
    }
    if (step == 1) weights[3].mutable_grad().narrow(0, 40'002, 1).fill_(inf);
    optimizer.step_scaled(std::nullopt, scaler.unscale(optimizer));
    scaler.update();
    for (std::size_t i = 0; i < weights.size(); ++i) {
      EXPECT_EQ(weights[i].equal(before[i]), step == 1) << step;
      if (step == 1) continue;
      EXPECT_TRUE(weights[i].grad().equal(at::full_like(weights[i].detach(), 3))) << step;
    }
  }
  EXPECT_EQ(scaler.skipped(), 1);
}

// Numbers of 24 bits whose products TF32's 11 bits cannot hold. Stride 2 keeps cuDNN from Winograd's and
// Fourier's algorithms, which round in their own ways; sums of these numbers are exact in any order.
TEST_F(OnCuda, Tf32IsOnForTf32Alone) {
  const at::Tensor a = at::ones({256, 256}, at::kCUDA) + 0x1p-13;
  const at::Tensor pictures = at::ones({32, 64, 56, 56}, at::kCUDA) + 0x1p-13;
  torch::nn::Conv2d conv(torch::nn::Conv2dOptions(64, 64, 3).stride(2).bias(false));
  conv->to(at::kCUDA);
  const at::NoGradGuard no_grad;
  conv->weight.fill_(1);
  const auto product = [&] { return a.mm(a)[0][0].item<double>(); };
  const auto convolution = [&] { return conv->forward(pictures)[0][0][0][0].item<double>(); };
  const double exact_product = 256 * (1 + 0x1p-12);
  const double exact_convolution = 576 * (1 + 0x1p-13);
  for (const Precision precision : {Precision::fp32, Precision::fp16, Precision::bf16}) {
    set_math_mode(precision);
    EXPECT_NEAR(product(), exact_product, 1e-2 * 0x1p-12 * 256) << word_of(precision);
    EXPECT_NEAR(convolution(), exact_convolution, 1e-2 * 0x1p-13 * 576) << word_of(precision);
  }
  if (!runs(Precision::tf32)) GTEST_SKIP() << "this device has no TF32";
  set_math_mode(Precision::tf32);
  EXPECT_EQ(product(), 256);
  EXPECT_EQ(convolution(), 576);
}

TEST_F(OnCuda, AutocastComputesConvolutionsIn16BitsAndLossesIn32) {
  torch::nn::Conv2d conv(torch::nn::Conv2dOptions(3, 10, 8));
  conv->to(at::kCUDA);
  const at::Tensor pictures = at::randn({6, 3, 8, 8}, at::kCUDA);
  const at::Tensor targets = at::ones({6}, at::TensorOptions(at::kLong).device(at::kCUDA));
  for (const Precision precision : {Precision::fp16, Precision::bf16}) {
    if (!runs(precision)) continue;
    at::Tensor scores, loss;
    {
      const AutocastGuard autocast(precision, at::kCUDA);
      scores = conv->forward(pictures).flatten(1);
      loss = torch::nn::functional::cross_entropy(scores, targets);
    }
    EXPECT_EQ(scores.scalar_type(), *autocast_type(precision));
    EXPECT_EQ(loss.scalar_type(), at::kFloat);
    loss.backward();
    EXPECT_EQ(conv->weight.grad().scalar_type(), at::kFloat);
    EXPECT_TRUE(std::isfinite(conv->weight.grad().norm().item<double>()));
    conv->zero_grad();
  }
}

}}  // namespace holdfast
