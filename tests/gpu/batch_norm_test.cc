// Fused batch norms on a real device: at sizes that fill it, and in a captured graph. Without a
// GPU every test is skipped and says so.
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <gtest/gtest.h>

#include "unit/kernels/batch_norm_cases.h"

namespace holdfast::test { namespace {

class FusedBatchNormOnCuda : public testing::Test {
 protected:
  void SetUp() override {
    if (c10::cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device here";
  }
};

TEST_F(FusedBatchNormOnCuda, AgreesWithSeparateOperatorsInFloat64) {
  expect_all_combinations({3, 40, 5, 7}, at::kCUDA);
  for (const Shape& shape :
       {Shape{32, 64, 112, 112}, Shape{32, 256, 56, 56}, Shape{37, 1024, 14, 14}, Shape{64, 2048, 7, 7},
        Shape{8, 24, 33, 33}, Shape{2, 520, 9, 8}, Shape{5, 16, 1, 1}}) {
    for (const auto type : {at::kFloat, at::kHalf, at::kBFloat16}) {
      expect_exact_enough({.type = type, .shape = shape, .relu = true}, at::kCUDA);
      expect_exact_enough({.type = type, .shape = shape, .add = true, .relu = true}, at::kCUDA);
    }
  }
}

TEST_F(FusedBatchNormOnCuda, HasTheSameBitsEveryTime) {
  const NormCase one{.type = at::kHalf, .shape = {32, 256, 56, 56}, .add = true, .relu = true};
  NormRun first = inputs_of(one, at::kCUDA);
  forward_and_backward(first, one);
  for (int i = 0; i < 20; ++i) {
    NormRun again = inputs_of(one, at::kCUDA);
    forward_and_backward(again, one);
    expect_same_bits(first, again);
  }
}

// y of a given mean and variance is computed channel by channel, whatever the grid.
TEST_F(FusedBatchNormOnCuda, HasTheBitsOfACpu) {
  for (const auto type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    const NormCase one{.type = type, .shape = {8, 72, 20, 20}, .add = true, .relu = true, .training = false};
    NormRun here = inputs_of(one, at::kCPU);
    NormRun there = inputs_of(one, at::kCUDA);
    here.variance.fill_(0.25);  // whose root no library rounds in its own way
    there.variance.fill_(0.25);
    forward_and_backward(here, one);
    forward_and_backward(there, one);
    EXPECT_TRUE(there.y.main.cpu().equal(here.y.main));
    EXPECT_TRUE(there.z.grad().cpu().equal(here.z.grad()));
  }
}

TEST_F(FusedBatchNormOnCuda, IsCapturedInAGraph) {
  const c10::cuda::CUDAStreamGuard side(c10::cuda::getStreamFromPool());
  const NormCase one{.type = at::kHalf, .shape = {16, 64, 28, 28}, .add = true, .relu = true};
  NormRun eager = inputs_of(one, at::kCUDA);
  NormRun captured = inputs_of(one, at::kCUDA);
  forward_and_backward(eager, one);
  const at::Tensor mean = captured.mean.clone();
  const at::Tensor variance = captured.variance.clone();
  at::cuda::CUDAGraph graph;
  graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
  forward_and_backward(captured, one);
  graph.capture_end();
  for (int i = 0; i < 3; ++i) {
    captured.mean.copy_(mean);
    captured.variance.copy_(variance);
    graph.replay();
    c10::cuda::device_synchronize();
    expect_same_bits(eager, captured);
  }
}

}}  // namespace holdfast::test
