// Two ranks over NCCL, on two GPUs or on one. To share one they need NCCL 2.30 or newer: the test then gives
// the ranks the library of HOLDFAST_TEST_NCCL by LD_PRELOAD, or tries the one that is loaded anyway. Two
// minutes on one GPU.
#include <c10/cuda/CUDAFunctions.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

namespace holdfast::test { namespace {

class SeveralRanks : public testing::Test {
 protected:
  void SetUp() override {
    if (c10::cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device here";
    if (c10::cuda::device_count() > 1 || !library().empty()) return;
    int version = 0;
    const auto ask = reinterpret_cast<int (*)(int*)>(::dlsym(RTLD_DEFAULT, "ncclGetVersion"));
    if (ask == nullptr || ask(&version) != 0 || version < 23000) {
      GTEST_SKIP() << "one GPU, and no NCCL of 2.30 or newer (HOLDFAST_TEST_NCCL=…/libnccl.so.2)";
    }
  }
  static std::string device() { return "cuda"; }
  static std::map<std::string, std::string> environment() {
    if (c10::cuda::device_count() > 1) return {};
    std::map<std::string, std::string> shared = {{"NCCL_MULTI_RANK_GPU_ENABLE", "1"}};
    if (!library().empty()) shared["LD_PRELOAD"] = library();
    return shared;
  }

 private:
  static std::string library() {
    const char* const named = std::getenv("HOLDFAST_TEST_NCCL");
    return named == nullptr ? "" : named;
  }
};

}}  // namespace holdfast::test

#include "dist/several_ranks_cases.h"

namespace holdfast::test { namespace {

// Gradients are summed while they are made, so steps run without graphs, and say so.
TEST_F(SeveralRanks, GraphsAreLeftOutWithAWarning) {
  std::string expected;
  for (const bool graph : {false, true}) {
    const ExampleRun run({"--data", "synthetic:256", "--width", "8", "--batch-size", "16", "--precision",
                          "fp16", "--loss-scale", "1024", "--steps", "10"});
    Words words = {program("holdfast"),
                   "launch",
                   "--nproc",
                   "2",
                   "--",
                   program("resnet50_cifar10"),
                   "--checkpoint-dir",
                   run.directory().string(),
                   "--data",
                   "synthetic:256",
                   "--width",
                   "8",
                   "--batch-size",
                   "16",
                   "--precision",
                   "fp16",
                   "--loss-scale",
                   "1024",
                   "--steps",
                   "10"};
    if (graph) words.emplace_back("--graph");
    const Ended ended = Subprocess(words, environment()).wait(std::chrono::minutes(5));
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_EQ(ended.err.find("steps run without CUDA graphs") != std::string::npos, graph) << ended.err;
    const std::string state = value_of(ended.out, "state=");
    EXPECT_FALSE(state.empty()) << ended.out;
    if (graph) {
      EXPECT_EQ(state, expected);
    }
    expected = state;
  }
}

}}  // namespace holdfast::test
