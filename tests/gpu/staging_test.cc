// Staging from a real device: what is committed is the state of the boundary, bit for bit, although the
// training overwrites it at once. Without a GPU every test is skipped and says so.
#include "unit/state/staging.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>

#include "holdfast/state/train_state.h"

namespace holdfast::test { namespace {

using testing::ElementsAre;

class Cuda : public testing::Test {
 protected:
  void SetUp() override {
    if (c10::cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device here";
  }
};

// Convolutions (in both memory formats), batch norm, momentum: what ResNet-50 has, small.
struct Net {
  explicit Net(bool channels_last = true)
      : optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9)) {
    net->to(at::kCUDA);
    if (channels_last) {
      const torch::NoGradGuard no_grad;
      for (at::Tensor& parameter : net->parameters()) {
        if (parameter.dim() == 4) parameter.set_data(parameter.contiguous(at::MemoryFormat::ChannelsLast));
      }
    }
    state.add("model", *net);
    state.add("optimizer", optimizer);
    forward();
    update();
    state.describe();
  }
  void forward() {
    optimizer.zero_grad();
    net->forward(at::randn({8, 16, 24, 24}, at::kCUDA)).square().mean().backward();
  }
  void update() { optimizer.step(); }
  // Work that keeps the device busy, so that nothing has happened yet when the host goes on. It draws no random
  // number, because the generators are part of the state.
  static void keep_busy() {
    at::Tensor a = at::ones({2048, 2048}, at::kCUDA);
    for (int i = 0; i < 20; ++i) a = a.mm(a).clamp(-1, 1);
  }

  torch::nn::Sequential net{
      torch::nn::Conv2d(torch::nn::Conv2dOptions(16, 64, 3)), torch::nn::BatchNorm2d(64),
      torch::nn::Conv2d(torch::nn::Conv2dOptions(64, 96, 3).bias(false)), torch::nn::BatchNorm2d(96)};
  torch::optim::SGD optimizer;
  TrainState state;
};

constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();

struct Staging {
  // `locked`: how many bytes of the image are page-locked, from its start.
  explicit Staging(SnapshotSource& source, std::size_t locked = kAll) : snapshot(empty_snapshot(source)) {
    const auto image = snapshot->arena->bytes();
    if (locked > 0)
      snapshot->arena->attach(source.traits().prepare_image(image.first(std::min(locked, image.size()))));
    snapshot->attributes = source.attributes();
    snapshot->step = source.position().step;
    source.copy(*snapshot->layout, snapshot->arena->bytes(), Part::early);
  }
  std::unique_ptr<LateCopy> late(SnapshotSource& source) {
    return source.copy(*snapshot->layout, snapshot->arena->bytes(), Part::late);
  }
  std::unique_ptr<LateCopy> independent(SnapshotSource& source) {
    return source.copy(*snapshot->layout, snapshot->arena->bytes(), Part::independent);
  }
  std::shared_ptr<Snapshot> snapshot;
};

// No more device memory than is in use now, while it lives.
class NoRoom {
 public:
  NoRoom() {
    c10::cuda::CUDACachingAllocator::emptyCache();
    std::size_t free = 0;
    std::size_t total = 0;
    EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(0);
    const auto used = static_cast<double>(stats.reserved_bytes[0].current);
    c10::cuda::CUDACachingAllocator::setMemoryFraction((used + (4 << 20)) / static_cast<double>(total), 0);
  }
  ~NoRoom() { c10::cuda::CUDACachingAllocator::setMemoryFraction(1.0, 0); }
  NoRoom(const NoRoom&) = delete;
  NoRoom& operator=(const NoRoom&) = delete;
};

TEST_F(Cuda, SetAsideItIsTheBoundaryWhateverTheTrainingDoesNext) {
  for (const std::size_t locked : {kAll, std::size_t{0}}) {
    Net run;
    const std::string whole = digest(run.state);
    Net::keep_busy();
    Staging staging(run.state, locked);
    const auto copy = staging.late(run.state);
    EXPECT_TRUE(copy->independent());
    for (int i = 0; i < 3; ++i) {
      run.forward();
      run.update();
    }
    copy->run();
    copy->arrive();
    EXPECT_EQ(digest(*staging.snapshot), whole) << (locked > 0 ? "page-locked" : "through a bounce");
  }
}

TEST_F(Cuda, AnUnannouncedLoopGetsTheBoundary) {
  Net run;
  const std::string whole = digest(run.state);
  Staging staging(run.state);
  const auto copy = staging.independent(run.state);
  ASSERT_TRUE(copy->independent());
  run.forward();
  run.update();
  copy->arrive();
  EXPECT_EQ(digest(*staging.snapshot), whole);
}

// 24 MB of parameters against 4 MiB that the allocator may still give.
struct Large {
  Large() : optimizer(net->parameters(), torch::optim::SGDOptions(0.1)) {
    net->to(at::kCUDA);
    state.add("model", *net);
    state.add("optimizer", optimizer);
    update();
    state.describe();
  }
  void update() {
    optimizer.zero_grad();
    net->forward(at::ones({1, 2048}, at::kCUDA)).sum().backward();
    optimizer.step();
  }
  torch::nn::Linear net{2048, 3072};
  torch::optim::SGD optimizer;
  TrainState state;
};

TEST_F(Cuda, WithoutRoomTheUpdateWaitsOnTheDevice) {
  Large run;
  const std::string whole = digest(run.state);
  Net::keep_busy();
  Staging staging(run.state);
  std::unique_ptr<LateCopy> copy;
  {
    const NoRoom no_room;
    copy = staging.late(run.state);
  }
  EXPECT_FALSE(copy->independent()) << "there was room after all";
  copy->hold_update();
  run.update();
  copy->arrive();
  EXPECT_EQ(digest(*staging.snapshot), whole);
  EXPECT_THAT(copy->changed(), ElementsAre("model/weight", "model/bias"));
}

TEST_F(Cuda, WithoutRoomAndUnannouncedItIsCopiedAtOnce) {
  Large run;
  const std::string whole = digest(run.state);
  Staging staging(run.state);
  std::unique_ptr<LateCopy> copy;
  {
    const NoRoom no_room;
    copy = staging.independent(run.state);
  }
  EXPECT_FALSE(copy->on_its_way());
  run.update();
  EXPECT_EQ(digest(*staging.snapshot), whole);
}

TEST_F(Cuda, AModuleThatIsCastMeanwhileLeavesItsMemory) {
  Net run;
  const std::string whole = digest(run.state);
  Staging staging(run.state);
  const auto copy = staging.late(run.state);
  run.net->to(at::kHalf);
  for (int i = 0; i < 50; ++i) at::randn({1 << 20}, at::kCUDA);  // takes what was freed
  copy->hold_update();
  copy->arrive();
  EXPECT_EQ(digest(*staging.snapshot), whole);
}

TEST_F(Cuda, TwoDevicesEachCopyTheirOwn) {
  if (c10::cuda::device_count() < 2) GTEST_SKIP() << "one CUDA device here";
  torch::nn::Linear first(64, 64);
  torch::nn::Linear second(64, 64);
  first->to(at::Device(at::kCUDA, 0));
  second->to(at::Device(at::kCUDA, 1));
  TrainState state;
  state.add("first", *first);
  state.add("second", *second);
  const std::string whole = digest(state);
  Staging staging(state);
  const auto copy = staging.late(state);
  {
    const torch::NoGradGuard no_grad;
    first->weight.fill_(1);
    second->weight.fill_(1);
  }
  copy->arrive();
  EXPECT_EQ(digest(*staging.snapshot), whole);
}

TEST_F(Cuda, AnotherStreamThanBeforeIsWaitedForWhole) {
  Net run;
  {
    Staging first(run.state);
    first.late(run.state)->arrive();
  }
  run.forward();
  run.update();
  const std::string whole = digest(run.state);
  const c10::cuda::CUDAStreamGuard other(c10::cuda::getStreamFromPool());
  Staging staging(run.state);
  EXPECT_FALSE(staging.late(run.state)->on_its_way());
  EXPECT_EQ(digest(*staging.snapshot), whole);
}

TEST_F(Cuda, StateGoesBackToItsDeviceBitForBit) {
  Net saved;
  const auto snapshot = stage(saved.state);
  Net other(false);
  other.forward();
  other.update();
  EXPECT_NE(digest(other.state), digest(*snapshot));
  other.state.load(*snapshot, {});
  EXPECT_EQ(digest(other.state), digest(*snapshot));
  EXPECT_TRUE(other.net->parameters().front().is_contiguous(at::MemoryFormat::ChannelsLast));
}

// As the last save of a run, and as its resume. Pages are locked in pieces, and CUDA refuses a copy that crosses
// from one into the next.
TEST_F(Cuda, AStateOfSeveralLockedPiecesIsCopiedAtOnceAndBack) {
  const auto make = [] {
    torch::nn::Linear net(4096, 4097);  // 67 MB
    net->to(at::kCUDA);
    return net;
  };
  torch::nn::Linear saved = make();
  TrainState state;
  state.add("model", *saved);
  Staging staging(state);
  state.copy(*staging.snapshot->layout, staging.snapshot->arena->bytes(), Part::all);
  EXPECT_EQ(digest(*staging.snapshot), digest(state));
  torch::nn::Linear other = make();
  TrainState resumed;
  resumed.add("model", *other);
  resumed.load(*staging.snapshot, {});
  EXPECT_TRUE(other->weight.equal(saved->weight));
  EXPECT_TRUE(other->bias.equal(saved->bias));
}

// Beside the training, too; and where a tensor begins in locked memory and ends in ordinary, as in the image of a rank
// that locks its own share alone.
TEST_F(Cuda, AStateOfSeveralLockedPiecesIsCopiedBesideTheTraining) {
  for (const std::size_t locked : {kAll, std::size_t{40} << 20}) {
    torch::nn::Linear net(4096, 4097);  // 67 MB
    net->to(at::kCUDA);
    TrainState state;
    state.add("model", *net);
    const std::string whole = digest(state);
    Staging staging(state, locked);
    const auto copy = staging.late(state);
    {
      const torch::NoGradGuard no_grad;
      net->weight.fill_(1);
    }
    copy->arrive();
    EXPECT_EQ(digest(*staging.snapshot), whole) << locked;
  }
}

// For people, not asserted: what the training thread waits for.
TEST_F(Cuda, TimeOfTheTrainingThread) {
  torch::nn::Sequential net;
  for (int i = 0; i < 48; ++i) net->push_back(torch::nn::Linear(512, 512));
  net->to(at::kCUDA);
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(0.1));
  TrainState state;
  state.add("model", *net);
  state.add("optimizer", optimizer);
  net->forward(at::ones({1, 512}, at::kCUDA)).sum().backward();
  optimizer.step();
  state.describe();
  const auto layout = empty_snapshot(state);
  std::vector<double> milliseconds;
  for (int i = 0; i < 9; ++i) {
    Staging staging(state);
    Net::keep_busy();
    const auto began = std::chrono::steady_clock::now();
    const auto copy = staging.independent(state);
    milliseconds.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began).count());
    copy->arrive();
  }
  std::sort(milliseconds.begin(), milliseconds.end());
  std::printf("gpu: %.0f MB begun in %.2f ms (median of 9)\n",
              static_cast<double>(layout->layout->length()) / 1e6, milliseconds[4]);
}

}}  // namespace holdfast::test
