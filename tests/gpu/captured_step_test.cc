// Steps that replay CUDA graphs, on a real device: the plain step's bits, captures that fail, several
// generators. Without a GPU every test is skipped and says so.
#include <ATen/Context.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bernoulli.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAFunctions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/optim/fused_sgd.h"
#include "holdfast/precision/grad_scaler.h"
#include "holdfast/train/device_graph.h"
#include "holdfast/train/step.h"

namespace holdfast { namespace {

using testing::HasSubstr;
using testing::internal::CaptureStderr;
using testing::internal::GetCapturedStderr;

class CapturedOnCuda : public testing::Test {
 protected:
  void SetUp() override {
    if (c10::cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device here";
    at::globalContext().setDeterministicCuDNN(true);
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
  }
};

at::Generator drawing() { return at::cuda::detail::getDefaultCUDAGenerator(); }

torch::nn::Sequential make_net() {
  torch::manual_seed(7);
  torch::nn::Sequential net(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 16, 3).padding(1).bias(false)));
  net->push_back(torch::nn::BatchNorm2d(16));
  net->push_back(torch::nn::Dropout(0.3));
  net->push_back(torch::nn::Flatten());
  net->push_back(torch::nn::Linear(16 * 8 * 8, 10));
  net->to(at::kCUDA);
  return net;
}

struct Trained {
  explicit Trained(bool graph, Precision precision = Precision::fp32, std::int64_t accumulation = 1,
                   std::optional<at::Generator> own = std::nullopt)
      : net(make_net()),
        optimizer(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9)),
        accumulation_(accumulation) {
    if (needs_scaler(precision)) scaler = std::make_unique<GradScaler>(at::Device(at::kCUDA));
    StepOptions options{.accumulation = accumulation, .precision = precision, .scaler = scaler.get()};
    options.graph = graph;
    if (own) options.graph_options.generators = {*own};
    step = std::make_unique<Step>(
        optimizer,
        [this, own](const Batch& batch) {
          at::Tensor pictures = batch.inputs.to(at::kCUDA, /*non_blocking=*/true);
          if (own) pictures = pictures * at::bernoulli(at::full_like(pictures, 0.5), *own);
          if (looks) looked += pictures.sum().item<double>();
          return torch::nn::functional::cross_entropy(net->forward(pictures), batch.targets.to(at::kCUDA));
        },
        options);
    torch::manual_seed(11);
    draws = drawing().get_state();
  }

  StepResult update(std::int64_t size = 6) {
    drawing().set_state(draws);
    std::optional<StepResult> result;
    while (!result) {
      Batch batch;
      batch.inputs = (at::arange(size * 3 * 64, at::kFloat).reshape({size, 3, 8, 8}) *
                      static_cast<float>(1 + count_ % 5))
                         .sin();
      batch.targets = (at::arange(size) * 7 + count_) % 10;
      batch.completes_update = ++count_ % accumulation_ == 0;
      result = step->run(batch);
    }
    draws = drawing().get_state();
    return *result;
  }

  torch::nn::Sequential net;
  FusedSgd optimizer;
  std::unique_ptr<GradScaler> scaler;
  std::unique_ptr<Step> step;
  at::Tensor draws;
  bool looks = false;
  double looked = 0;

 private:
  std::int64_t accumulation_;
  std::int64_t count_ = 0;
};

void expect_equal(const Trained& one, const Trained& other) {
  for (const auto& entry : one.net->named_parameters()) {
    EXPECT_TRUE(entry.value().equal(other.net->named_parameters()[entry.key()])) << entry.key();
  }
  for (const auto& entry : one.net->named_buffers()) {
    EXPECT_TRUE(entry.value().equal(other.net->named_buffers()[entry.key()])) << entry.key();
  }
  EXPECT_TRUE(one.draws.equal(other.draws)) << "random numbers";
}

TEST_F(CapturedOnCuda, ReplaysHaveThePlainStepsBits) {
  for (const Precision precision : {Precision::fp32, Precision::fp16}) {
    for (const std::int64_t accumulation : {1, 2}) {
      Trained plain(false, precision, accumulation), graph(true, precision, accumulation);
      for (int i = 0; i < 12; ++i) {
        EXPECT_EQ(plain.update().loss, graph.update().loss) << i;
        EXPECT_EQ(graph.step->replayed(), i * accumulation >= 3) << i;
      }
      expect_equal(plain, graph);
      EXPECT_EQ(plain.update(4).loss, graph.update(4).loss) << "a smaller batch";
      EXPECT_FALSE(graph.step->replayed());
      EXPECT_EQ(plain.update().loss, graph.update().loss);
      expect_equal(plain, graph);
    }
  }
}

TEST_F(CapturedOnCuda, AGeneratorOfItsOwnGoesOn) {
  std::vector<at::Generator> own;
  for (int i = 0; i < 2; ++i) {
    own.push_back(at::cuda::detail::createCUDAGenerator());
    own.back().set_current_seed(3);
  }
  Trained plain(false, Precision::fp32, 1, own[0]), graph(true, Precision::fp32, 1, own[1]);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(plain.update().loss, graph.update().loss) << i;
  EXPECT_TRUE(graph.step->replayed());
  EXPECT_TRUE(own[0].get_state().equal(own[1].get_state()));
  expect_equal(plain, graph);
}

TEST_F(CapturedOnCuda, ALossThatLooksAtTheDeviceFallsBackAndLeavesNothingBehind) {
  Trained plain(false), graph(true);
  graph.looks = true;
  CaptureStderr();
  for (int i = 0; i < 10; ++i) EXPECT_EQ(plain.update().loss, graph.update().loss) << i;
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("without a graph: the capture failed: "));
  EXPECT_FALSE(graph.step->replayed());
  expect_equal(plain, graph);
  // Allocator and generators as before: the next capture succeeds.
  Trained next(true);
  Trained beside(false);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(next.update().loss, beside.update().loss) << i;
  EXPECT_TRUE(next.step->replayed());
}

// From LibTorch 2.11 on a capture also records page-locked memory, which belongs to the graph.
TEST_F(CapturedOnCuda, AFailedCaptureReturnsItsPageLockedMemory) {
  auto* const allocator = at::getHostAllocator(at::kCUDA);
  const auto held = [&] {
    allocator->empty_cache();
    return allocator->get_stats().allocated_bytes.current;
  };
  const auto graphs = make_cuda_graphs(at::Device(at::kCUDA, 0));
  const at::Tensor on_device = at::zeros({8}, at::kCUDA);
  const auto before = held();
  for (int i = 0; i < 3; ++i) {
    EXPECT_THROW(graphs->capture([&] {
      const at::Tensor locked = at::empty({1 << 20}, at::TensorOptions().pinned_memory(true));
      on_device.sum().item<float>();  // waits for the device, which no capture may
    }),
                 Error);
    EXPECT_EQ(held(), before) << i;
  }
  const at::Tensor after = at::empty({1 << 20}, at::TensorOptions().pinned_memory(true));
  EXPECT_GT(held(), before) << "page-locked memory can be allocated again";
}

TEST_F(CapturedOnCuda, AnOverflowIsLeftOutOfReplays) {
  Trained graph(true, Precision::fp16);
  for (int i = 0; i < 6; ++i) graph.update();
  EXPECT_TRUE(graph.step->replayed());
  graph.scaler->scale_tensor().fill_(std::numeric_limits<float>::max());
  const at::Tensor before = graph.net->parameters()[0].detach().clone();
  EXPECT_TRUE(graph.update().skipped) << "the replay reads the scale where it is";
  EXPECT_TRUE(graph.step->replayed());
  EXPECT_TRUE(before.equal(graph.net->parameters()[0]));
}

TEST_F(CapturedOnCuda, ParametersThatMoveAreCapturedAnew) {
  Trained plain(false), graph(true);
  for (int i = 0; i < 12; ++i) {
    if (i == 6) {
      for (Trained* run : {&plain, &graph}) {
        for (at::Tensor& parameter : run->net->parameters()) parameter.set_data(parameter.clone());
      }
    }
    EXPECT_EQ(plain.update().loss, graph.update().loss) << i;
    EXPECT_EQ(graph.step->replayed(), (i >= 3 && i < 6) || i >= 9) << i;
  }
  expect_equal(plain, graph);
}

}}  // namespace holdfast
