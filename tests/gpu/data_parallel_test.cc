// One rank, its collectives by NCCL.
#include "holdfast/distributed/data_parallel.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAFunctions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

namespace holdfast { namespace {

TEST(DataParallelOnGpu, AWorldOfOneThroughNccl) {
  if (c10::cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device here";
  ProcessGroup group({.place = {}, .device = c10::Device(c10::kCUDA, 0), .even_alone = true});
  torch::nn::Linear net(64, 32);
  net->to(c10::Device(c10::kCUDA, 0));
  const at::Tensor inputs = at::ones({8, 64}, at::TensorOptions(c10::kCUDA));
  const auto loss = [&] { return net->forward(inputs).square().mean(); };
  loss().backward();
  const at::Tensor plain = net->weight.grad().clone();
  {
    DataParallel parallel(*net, group, {.first_bucket_bytes = 64, .bucket_bytes = 64});
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      parallel.before_forward();
      parallel.backward(loss());
      EXPECT_TRUE(at::equal(net->weight.grad(), plain));
    }
    EXPECT_EQ(parallel.buckets().size(), 2U);
    parallel.verify();
  }
  group.leave();
}

}}  // namespace holdfast
