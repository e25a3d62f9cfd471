// The example's own promise on a real device: killed and resumed, it has the same bits, with all that makes it
// quick there. Without a GPU every test is skipped and says so.
#include <c10/cuda/CUDAFunctions.h>

#include "resume/example_run.h"

namespace holdfast::test { namespace {

class ExampleOnCuda : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (c10::cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device here";
    if (!std::filesystem::exists(program("resnet50_cifar10"))) GTEST_SKIP() << "the example is not built";
  }
};

// 20 updates of 64 pictures an epoch. The imagenet stem has a max pool.
TEST_P(ExampleOnCuda, KilledAndResumedHasTheBitsOfAStraightRun) {
  const std::vector<std::string> words = {
      "--data",   "synthetic:1280",  "--width",   "16",     "--batch-size", "64",   "--stem",
      GetParam(), "--channels-last", "--bn",      "fused",  "--precision",  "fp16", "--loss-scale",
      "1024",     "--graph",         "--data-on", "device", "--steps",      "50",   "--lr",
      "0.05"};
  const ExampleRun straight(words);
  const Ended expected = straight.finish({"--every", "1000steps"});
  ASSERT_EQ(expected.exit_code, 0) << expected.err;
  const Losses losses = read_losses(straight.metrics());
  ASSERT_EQ(losses.by_step.size(), 50U);

  const ExampleRun run(words);
  for (const std::int64_t after : {7, 12, 15}) {  // at the start of a graph's life, and late in it
    auto process = run.start({"--every", "3steps"});
    const std::int64_t lines = run.steps_logged() + after;
    ASSERT_TRUE(process->wait_until([&] { return run.steps_logged() >= lines; }));
    process->send(SIGKILL);
    EXPECT_EQ(process->wait().signal, SIGKILL);
  }
  const Ended ended = run.finish();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(ended.last_line(), expected.last_line());
  EXPECT_THAT(ended.last_line(), testing::HasSubstr("state="));
  EXPECT_EQ(read_losses(run.metrics()).by_step, losses.by_step);
}

INSTANTIATE_TEST_SUITE_P(Stems, ExampleOnCuda, testing::Values("imagenet", "cifar"),
                         [](const auto& info) { return std::string(info.param); });

TEST(TwoRanksOnOneGpu, AreRefused) {
  if (c10::cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device here";
  if (c10::cuda::device_count() > 1) GTEST_SKIP() << "this host has a GPU for each of two ranks";
  const TemporaryFolder folder;
  const Ended ended =
      Subprocess({program("holdfast"), "launch", "--nproc", "2", "--", program("resnet50_cifar10"), "--data",
                  "synthetic:256", "--width", "8", "--batch-size", "16", "--steps", "2", "--checkpoint-dir",
                  (folder.path() / "run").string()})
          .wait();
  EXPECT_EQ(ended.exit_code, 64) << ended.err;
  EXPECT_THAT(ended.err, testing::HasSubstr("share one GPU"));
}

}}  // namespace holdfast::test
