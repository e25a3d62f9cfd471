// Graphs of forward and backward against the plain step, bit for bit, on a device that only pretends.
#include "holdfast/train/captured_pass.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "fake_graphs.h"
#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/optim/fused_sgd.h"
#include "holdfast/precision/grad_scaler.h"
#include "holdfast/train/step.h"

namespace holdfast { namespace {

using testing::HasSubstr;
using testing::internal::CaptureStderr;
using testing::internal::GetCapturedStderr;

struct Kind {
  Precision precision = Precision::fp32;
  std::int64_t accumulation = 1;
  double clip = 0;
};

at::Generator drawing() { return at::detail::getDefaultCPUGenerator(); }

torch::nn::Sequential make_net() {
  torch::manual_seed(7);
  torch::nn::Sequential net(torch::nn::Linear(6, 8));
  net->push_back(torch::nn::BatchNorm1d(8));
  net->push_back(torch::nn::Dropout(0.3));
  net->push_back(torch::nn::Linear(8, 1));
  return net;
}

// A network with all that a pass may touch: running statistics, random numbers, autocast, a loss scale. Its
// batches depend on their number alone.
struct Subject {
  explicit Subject(const Kind& kind, bool graph = true)
      : net(make_net()),
        optimizer(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9)),
        device(std::make_shared<test::FakeGraphs>(*net)),
        kind_(kind) {
    if (needs_scaler(kind.precision))
      scaler = std::make_unique<GradScaler>(at::kCPU, GradScalerOptions{.init_scale = 1024});
    StepOptions options{.clip_grad_norm = kind.clip,
                        .accumulation = kind.accumulation,
                        .precision = kind.precision,
                        .scaler = scaler.get()};
    options.graph = graph;
    options.graph_options = {.warm_up = 3, .device = device};
    step = std::make_unique<Step>(
        optimizer,
        [this](const Batch& batch) {
          return torch::nn::functional::mse_loss(net->forward(batch.inputs).to(at::kFloat), batch.targets);
        },
        options);
    torch::manual_seed(11);
    draws = drawing().get_state();
  }

  // Each run draws from its own place. `length`: of a field beside inputs and targets, such as a mask.
  std::optional<StepResult> micro_batch(std::int64_t size = 5, bool overflows = false,
                                        std::int64_t length = 1) {
    drawing().set_state(draws);
    const at::Tensor numbers = at::arange(size * 6, at::kFloat).reshape({size, 6});
    Batch batch;
    batch.inputs = (numbers * static_cast<float>(1 + count_ % 5)).sin();
    if (overflows) batch.inputs[0][0] = std::numeric_limits<float>::infinity();
    batch.targets = batch.inputs.sum(1, true);
    batch.fields = {batch.inputs, at::zeros({size, length}), batch.targets};
    batch.completes_update = ++count_ % kind_.accumulation == 0;
    const auto result = step->run(batch);
    draws = drawing().get_state();
    return result;
  }
  StepResult update(std::int64_t size = 5, bool overflows = false) {
    while (true) {
      const auto result = micro_batch(size, overflows && (count_ + 1) % kind_.accumulation == 0);
      if (result) return *result;
    }
  }

  torch::nn::Sequential net;
  FusedSgd optimizer;
  std::shared_ptr<test::FakeGraphs> device;
  std::unique_ptr<GradScaler> scaler;
  std::unique_ptr<Step> step;
  at::Tensor draws;

 private:
  Kind kind_;
  std::int64_t count_ = 0;
};

void expect_equal(const Subject& one, const Subject& other) {
  const auto left = one.net->named_parameters(), right = other.net->named_parameters();
  for (const auto& entry : left) EXPECT_TRUE(entry.value().equal(right[entry.key()])) << entry.key();
  for (const auto& entry : one.net->named_buffers()) {
    EXPECT_TRUE(entry.value().equal(other.net->named_buffers()[entry.key()])) << entry.key();
  }
  EXPECT_TRUE(one.draws.equal(other.draws)) << "random numbers";
}

void expect_same_update(Subject& one, Subject& other, std::int64_t size = 5, bool overflows = false) {
  const StepResult left = one.update(size, overflows), right = other.update(size, overflows);
  EXPECT_EQ(left.skipped, right.skipped);
  if (overflows) return;
  EXPECT_EQ(left.loss, right.loss);
  EXPECT_EQ(left.grad_norm, right.grad_norm);
}

TEST(Captured, ReplaysHaveThePlainStepsBits) {
  for (const Kind& kind : {Kind{}, Kind{.accumulation = 3}, Kind{.clip = 0.5},
                           Kind{.precision = Precision::bf16}, Kind{.precision = Precision::fp16, .clip = 1},
                           Kind{.precision = Precision::fp16, .accumulation = 2}}) {
    Subject plain(kind, false), graph(kind);
    for (int i = 0; i < 12; ++i) expect_same_update(plain, graph);
    expect_equal(plain, graph);
    const auto micro_batches = static_cast<int>(12 * kind.accumulation);
    // The next first one after three.
    const int warm_up = kind.accumulation == 1 ? 3 : kind.accumulation == 2 ? 4 : 3;
    EXPECT_EQ(graph.device->asides, warm_up);
    EXPECT_EQ(graph.device->replays, micro_batches - warm_up);
    EXPECT_EQ(graph.device->captures, kind.accumulation == 1 ? 1 : 2);
    EXPECT_EQ(graph.device->shared, kind.accumulation == 1 ? 0 : 1);
    EXPECT_TRUE(graph.step->replayed());
    EXPECT_FALSE(plain.step->replayed());
  }
}

TEST(Captured, AnOverflowInAReplayIsLeftOut) {
  for (const Kind& kind :
       {Kind{.precision = Precision::fp16}, Kind{.precision = Precision::fp16, .accumulation = 2}}) {
    Subject plain(kind, false), graph(kind);
    for (int i = 0; i < 10; ++i) {
      // The statistics of a batch norm do not survive infinite inputs: they are put back.
      std::vector<at::Tensor> kept;
      for (const Subject* run : {&plain, &graph}) {
        for (const at::Tensor& buffer : run->net->buffers()) kept.push_back(buffer.clone());
      }
      expect_same_update(plain, graph, 5, i == 6);
      if (i != 6) continue;
      std::size_t next = 0;
      for (const Subject* run : {&plain, &graph}) {
        for (const at::Tensor& buffer : run->net->buffers()) buffer.copy_(kept[next++]);
      }
      EXPECT_EQ(graph.scaler->skipped(), 1);
    }
    EXPECT_TRUE(graph.step->replayed());
    expect_equal(plain, graph);
  }
}

TEST(Captured, ABatchOfAnotherShapeGoesWithoutAGraph) {
  Subject plain({}, false), graph({});
  for (int i = 0; i < 5; ++i) expect_same_update(plain, graph);
  EXPECT_EQ(graph.device->replays, 2);
  expect_same_update(plain, graph, 3);
  EXPECT_FALSE(graph.step->replayed());
  expect_same_update(plain, graph);
  EXPECT_TRUE(graph.step->replayed()) << "the graph is still there";
  EXPECT_EQ(graph.device->captures, 1);
  for (int i = 0; i < 5; ++i) expect_same_update(plain, graph, 4);
  EXPECT_EQ(graph.device->captures, 2) << "the new shape is here to stay";
  EXPECT_TRUE(graph.step->replayed());
  expect_equal(plain, graph);
}

TEST(Captured, ShapesThatNeverStayAreSaidOnce) {
  Subject graph({});
  show_log_times(false);
  CaptureStderr();
  for (int i = 0; i < 120; ++i) graph.update(3 + i % 2);
  EXPECT_EQ(
      GetCapturedStderr(),
      "holdfast: warning: forward and backward run without a graph: the last 53 batches changed their shape "
      "too often; a graph needs 4 of one shape in a row\n");
  EXPECT_EQ(graph.device->captures, 0);
}

TEST(Captured, AnotherShapeWithinAnUpdateAddsToTheReplaysGradients) {
  Subject plain({.accumulation = 2}, false), graph({.accumulation = 2});
  for (int i = 0; i < 5; ++i) expect_same_update(plain, graph);
  EXPECT_EQ(graph.device->captures, 2);
  for (const auto& [first, second] : {std::pair(1, 3), {3, 1}, {1, 1}}) {
    for (Subject* run : {&plain, &graph}) {
      EXPECT_FALSE(run->micro_batch(5, false, first));
      EXPECT_TRUE(run->micro_batch(5, false, second));
    }
    expect_equal(plain, graph);
  }
  EXPECT_EQ(graph.device->captures, 2);
}

TEST(Captured, ACaptureThatFailsIsSaidOnceAndThePlainStepGoesOn) {
  for (const int fails_at : {1, 2}) {
    Subject plain({.accumulation = 2}, false), graph({.accumulation = 2});
    graph.device->fails_at = fails_at;
    show_log_times(false);
    CaptureStderr();
    for (int i = 0; i < 8; ++i) expect_same_update(plain, graph);
    EXPECT_EQ(GetCapturedStderr(),
              "holdfast: warning: forward and backward run without a graph: the capture failed: operation "
              "not permitted when stream is capturing\n");
    EXPECT_EQ(graph.device->captures, fails_at);
    EXPECT_FALSE(graph.step->replayed());
    expect_equal(plain, graph);
  }
}

TEST(Captured, ParametersThatMoveOrFreezeAreCapturedAnew) {
  Subject plain({}, false), graph({});
  const auto both = [&](auto&& change) {
    const at::NoGradGuard no_grad;
    change(*plain.net);
    change(*graph.net);
  };
  for (int i = 0; i < 5; ++i) expect_same_update(plain, graph);
  both([](torch::nn::Module& net) {
    for (at::Tensor& parameter : net.parameters()) parameter.set_data(parameter.clone());
  });
  for (int i = 0; i < 5; ++i) expect_same_update(plain, graph);
  EXPECT_EQ(graph.device->captures, 2);
  both([](torch::nn::Module& net) { net.parameters()[0].requires_grad_(false); });
  for (int i = 0; i < 5; ++i) expect_same_update(plain, graph);
  EXPECT_EQ(graph.device->captures, 3);
  graph.step->forget_graph();
  for (int i = 0; i < 5; ++i) expect_same_update(plain, graph);
  EXPECT_EQ(graph.device->captures, 4);
  EXPECT_TRUE(graph.step->replayed());
  expect_equal(plain, graph);
}

TEST(Captured, WithoutACudaDeviceItSaysSoOnce) {
  torch::nn::Linear net(2, 1);
  FusedSgd optimizer(net->parameters(), torch::optim::SGDOptions(0.1));
  Step step(optimizer, [&](const Batch& batch) { return net->forward(batch.inputs).mean(); },
            {.graph = true});
  Batch batch;
  batch.inputs = at::ones({3, 2});
  CaptureStderr();
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(step.run(batch));
  const std::string said = GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("without a graph: "));
  EXPECT_THAT(said, HasSubstr("CUDA"));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1);
  EXPECT_FALSE(step.replayed());
  EXPECT_THROW(Step(optimizer, [](const Batch&) { return at::Tensor(); },
                    {.graph = true, .graph_options = {.warm_up = 0}}),
               UsageError);
}

}}  // namespace holdfast
