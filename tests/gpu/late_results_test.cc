// A trainer on a GPU never waits for the device at a step that nothing is saved at: this program's own
// definitions of CUDA's waiting calls count them. Without a GPU every test is skipped and says so.
#include <ATen/Context.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/optim/ema.h"
#include "holdfast/optim/fused_sgd.h"
#include "holdfast/precision/grad_scaler.h"
#include "holdfast/train/trainer.h"
#include "support/subprocess.h"

namespace {

std::atomic<int> waits{0};
thread_local bool counts = false;  // on the training thread only: the writer may wait

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

void count_wait() {
  if (counts) ++waits;
}

// A copy between the device and memory that is not page-locked waits.
void count_copy(const void* to, const void* from, cudaMemcpyKind kind) {
  if (!counts || kind == cudaMemcpyDeviceToDevice) return;
  for (const void* const memory : {to, from}) {
    cudaPointerAttributes attributes{};
    const bool known = cudaPointerGetAttributes(&attributes, memory) == cudaSuccess;
    if (!known || attributes.type == cudaMemoryTypeUnregistered) {
      ++waits;
      return;
    }
  }
}

}  // namespace

// The loader finds these before the CUDA runtime's, if they are not hidden as all else is.
#pragma GCC visibility push(default)
extern "C" {
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  count_wait();
  return next<cudaError_t(cudaStream_t)>("cudaStreamSynchronize")(stream);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  count_wait();
  return next<cudaError_t(cudaEvent_t)>("cudaEventSynchronize")(event);
}
cudaError_t cudaDeviceSynchronize() {
  count_wait();
  return next<cudaError_t()>("cudaDeviceSynchronize")();
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  count_wait();
  return next<cudaError_t(void*, const void*, size_t, cudaMemcpyKind)>("cudaMemcpy")(to, from, bytes, kind);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  count_copy(to, from, kind);
  return next<cudaError_t(void*, const void*, size_t, cudaMemcpyKind, cudaStream_t)>("cudaMemcpyAsync")(
      to, from, bytes, kind, stream);
}
}
#pragma GCC visibility pop

namespace holdfast { namespace {

struct Pictures {
  struct Sample {
    at::Tensor x;
    at::Tensor y;
  };
  std::int64_t size() const { return 512; }
  Sample get(std::int64_t index) const {
    return {at::full({3, 8, 8}, static_cast<float>(index % 11) / 11), at::full({}, index % 10, at::kLong)};
  }
};

struct Recorder final : MetricSink {
  void step(const StepEvent& event) override { losses.push_back(event.loss); }
  std::vector<double> losses;
};

struct Left {
  std::string line;
  std::vector<double> losses;
  int waits = 0;
  std::int64_t skipped = 0;
};

class LateOnCuda : public testing::Test {
 protected:
  void SetUp() override {
    if (c10::cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device here";
    at::globalContext().setDeterministicCuDNN(true);
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
  }
  Left run(bool late, bool graph, Precision precision) {
    ::setenv("HOLDFAST_LATE_RESULTS", late ? "1" : "0", 1);
    torch::manual_seed(7);
    torch::nn::Sequential net(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 16, 3).bias(false)),
                              torch::nn::BatchNorm2d(16), torch::nn::Flatten(),
                              torch::nn::Linear(16 * 6 * 6, 10));
    net->to(at::kCUDA);
    FusedSgd optimizer(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
    GradScaler scaler(at::Device(at::kCUDA, 0), {.init_scale = 1e30});  // overflows at first
    Ema ema(*net);
    Loader data(Pictures{}, {.batch_size = 16, .seed = 5, .workers = 2, .pin_memory = true});
    StepOptions options{.clip_grad_norm = 5, .precision = precision, .layers = net.get()};
    if (needs_scaler(precision)) options.scaler = &scaler;
    options.graph = graph;
    Step step(
        optimizer,
        [&](const Batch& batch) {
          return torch::nn::functional::cross_entropy(
              net->forward(batch.inputs.to(at::kCUDA, /*non_blocking=*/true)),
              batch.targets.to(at::kCUDA, /*non_blocking=*/true));
        },
        options);
    TrainState state;
    state.add("model", *net);
    state.add("optimizer", optimizer);
    state.add("data", data);
    state.add("ema", ema);
    if (needs_scaler(precision)) state.add("scaler", scaler);
    test::TemporaryFolder folder;
    Checkpointer checkpointer(state, {.directory = folder.path() / "run",
                                      .every = {},
                                      .notices = {.hear_signals = false, .cloud = false}});
    Recorder recorder;
    waits = 0;
    Trainer trainer({.state = state,
                     .checkpointer = checkpointer,
                     .model = *net,
                     .data = data,
                     .step = step,
                     .learning_rate =
                         [&](std::int64_t applied) {
                           // From step 12 on: warm-up, capture and the first layout of the file have passed.
                           counts = state.step() >= 12 && state.step() < 60;
                           const double rate = 0.05 / static_cast<double>(1 + applied);
                           optimizer.param_groups()[0].options().set_lr(rate);
                           return rate;
                         },
                     .average = &ema,
                     .sinks = {&recorder}},
                    {.steps = 64});
    EXPECT_EQ(trainer.run(), 0);
    counts = false;
    ::unsetenv("HOLDFAST_LATE_RESULTS");
    return {to_line(trainer.result()), recorder.losses, waits, state.skipped()};
  }
};

TEST_F(LateOnCuda, TheCountersSeeAReadAndACopyToOrdinaryMemory) {
  const at::Tensor on_device = at::ones({4}, at::kCUDA);
  counts = true;
  waits = 0;
  static_cast<void>(on_device.sum().item<float>());
  EXPECT_GE(waits, 1);
  waits = 0;
  static_cast<void>(on_device.cpu());
  EXPECT_GE(waits, 1);
  counts = false;
}

TEST_F(LateOnCuda, NoStepWaitsAndTheBitsAreThoseOfATrainerThatWaits) {
  for (const bool graph : {false, true}) {
    for (const Precision precision : {Precision::fp32, Precision::fp16}) {
      const Left at_once = run(false, graph, precision), late = run(true, graph, precision);
      EXPECT_EQ(late.waits, 0) << graph << ' ' << word_of(precision);
      EXPECT_EQ(late.line, at_once.line);
      ASSERT_EQ(late.losses.size(), at_once.losses.size());
      for (std::size_t i = 0; i < late.losses.size(); ++i) EXPECT_EQ(late.losses[i], at_once.losses[i]) << i;
      EXPECT_EQ(late.skipped, at_once.skipped);
      EXPECT_EQ(late.skipped > 0, precision == Precision::fp16);
    }
  }
}

}}  // namespace holdfast
