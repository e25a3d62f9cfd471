// What ranks share, one rank alone by the real NCCL: numbers are those of one process without a group.
#include <ATen/ATen.h>
#include <c10/cuda/CUDAFunctions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "holdfast/distributed/data_parallel.h"
#include "holdfast/distributed/found_inf.h"
#include "holdfast/distributed/sharded_optimizer.h"
#include "holdfast/distributed/sync_batch_norm.h"
#include "holdfast/optim/fused_adam.h"
#include "holdfast/optim/lamb.h"
#include "holdfast/state/train_state.h"
#include "unit/state/staging.h"

namespace holdfast { namespace {

const c10::Device kDevice(c10::kCUDA, 0);

struct Net : torch::nn::Module {
  Net() {
    torch::manual_seed(5);
    first = register_module("first", torch::nn::Linear(64, 301));
    last = register_module("last", torch::nn::Linear(301, 7));
    to(kDevice);
  }
  at::Tensor loss() {
    return (last(first(at::ones({8, 64}, at::TensorOptions(kDevice))).relu()) - 1).square().mean();
  }
  torch::nn::Linear first{nullptr}, last{nullptr};
};

class Collectives : public testing::Test {
 protected:
  void SetUp() override {
    if (c10::cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device here";
    group = std::make_unique<ProcessGroup>(GroupOptions{.place = {}, .device = kDevice, .even_alone = true});
  }
  void TearDown() override {
    if (group) group->leave();
  }
  std::unique_ptr<ProcessGroup> group;
};

double apart(const std::vector<at::Tensor>& ones, const std::vector<at::Tensor>& others) {
  double worst = 0;
  for (std::size_t i = 0; i < ones.size(); ++i) {
    worst = std::max(worst, (ones[i] - others[i]).abs().max().item().toDouble());
  }
  return worst;
}

// Buckets in 16 bits: a world of one sends its own gradients, and gets them back rounded.
TEST_F(Collectives, CompressedGradientsAreRounded) {
  for (const auto how : {GradientCompression::fp16, GradientCompression::bf16}) {
    Net net;
    net.loss().backward();
    const at::Tensor plain = net.first->weight.grad().clone();
    net.zero_grad();
    DataParallel parallel(net, *group, {.compression = how, .first_bucket_bytes = 64, .bucket_bytes = 64});
    parallel.before_forward();
    parallel.backward(net.loss());
    const auto narrow = how == GradientCompression::fp16 ? at::kHalf : at::kBFloat16;
    EXPECT_TRUE(at::equal(net.first->weight.grad(), plain.to(narrow).to(at::kFloat)));
  }
}

TEST_F(Collectives, BatchNormsOfOneRankAreOrdinary) {
  torch::nn::BatchNorm2d plain(5);
  SyncBatchNorm2d ours(5);
  plain->to(kDevice);
  ours->to(kDevice);
  ours->synchronize(group.get());
  const at::Tensor x = at::randn({6, 5, 9, 9}, at::TensorOptions(kDevice)) * 3 + 20;
  at::Tensor one = x.clone().requires_grad_(), other = x.clone().requires_grad_();
  const at::Tensor expected = plain(one), found = ours(other);
  EXPECT_LT(apart({expected}, {found}), 1e-4);
  expected.square().sum().backward();
  found.square().sum().backward();
  EXPECT_LT(apart({one.grad()}, {other.grad()}), 1e-3);
  EXPECT_LT(apart({plain->running_var}, {ours->running_var}), 1e-4);
}

template <class Optimizer, class Options>
void expect_shares_compute_as_a_whole(ProcessGroup& group, const Options& options, double limit) {
  Net whole, sharded;
  Optimizer expected(whole.parameters(), options), inner(sharded.parameters(), options);
  ShardedOptimizer found(inner, sharded, group, {.chunk_bytes = 4000});
  for (int step = 0; step < 5; ++step) {
    expected.zero_grad();
    whole.loss().backward();
    expected.step();
    found.zero_grad();
    sharded.loss().backward();
    found.step();
  }
  EXPECT_LT(apart(whole.parameters(), sharded.parameters()), limit);

  // Gathered, cut again, and to the bit where it was.
  TrainState state;
  state.add("model", sharded);
  state.add("optimizer", found);
  const auto kept = test::stage(state);
  const auto go_on = [&] {
    found.zero_grad();
    sharded.loss().backward();
    found.step();
    std::vector<at::Tensor> after;
    for (const at::Tensor& parameter : sharded.parameters()) after.push_back(parameter.detach().clone());
    return after;
  };
  const auto straight = go_on();
  state.load(*kept, {});
  EXPECT_EQ(apart(straight, go_on()), 0);
}

TEST_F(Collectives, AnOptimizerInSharesComputesAsAWholeOne) {
  expect_shares_compute_as_a_whole<FusedAdamW>(*group, torch::optim::AdamWOptions(1e-2), 1e-5);
  expect_shares_compute_as_a_whole<Lamb>(
      *group, LambOptions(1e-2).weight_decay(0.1).adapt_all(true).max_grad_norm(0.05), 1e-5);
}

TEST_F(Collectives, WhatAScalerFoundIsAgreedOnTheDevice) {
  at::Tensor found = at::ones({}, at::TensorOptions(kDevice));
  found_on_any_rank (*group)(found);
  EXPECT_EQ(found.item<float>(), 1);
}

// The first collective has made a communicator: it ends in order, and what it computed is there.
TEST_F(Collectives, PartsWithWorkUnderWay) {
  at::Tensor many = at::ones({1 << 24}, at::TensorOptions(kDevice));
  std::vector<at::Tensor> all{many};
  for (int i = 0; i < 20; ++i) group->guard("a sum", [&] { group->c10d()->allreduce(all)->wait(); });
  group->leave();
  EXPECT_TRUE(group->alone());
  EXPECT_EQ(many.sum().item().toDouble(), 1 << 24);
  EXPECT_STREQ(std::getenv("TORCH_NCCL_ASYNC_ERROR_HANDLING"), "0");
}

// A program's own error with collectives under way: nothing hangs, nothing aborts the process.
TEST_F(Collectives, UnwindsWithWorkUnderWay) {
  at::Tensor many = at::ones({1 << 24}, at::TensorOptions(kDevice));
  try {
    ProcessGroup another({.place = {}, .device = kDevice, .even_alone = true});
    std::vector<at::Tensor> all{many};
    for (int i = 0; i < 20; ++i) another.c10d()->allreduce(all)->wait();
    throw std::runtime_error("the program's own");
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "the program's own");
  }
}

}}  // namespace holdfast
