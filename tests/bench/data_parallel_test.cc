// bench_data_parallel as a program, on a tiny scale. No figure is judged here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/subprocess.h"

namespace holdfast::test { namespace {

using testing::HasSubstr;
using testing::SizeIs;

Ended bench_data_parallel(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), HOLDFAST_BIN_DIR "/bench_data_parallel");
  return Subprocess(std::move(arguments)).wait(std::chrono::minutes(8));
}

TEST(BenchDataParallel, ComparesWithPlainC10d) {
  const TemporaryFolder folder;
  const std::string output = folder.path() / "result.json";
  const Ended ended = bench_data_parallel(
      {"--models", "mlp", "--steps", "3", "--repetitions", "3", "--no-python", "--output", output});
  ASSERT_EQ(ended.exit_code, 0) << ended.out << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("left out: python: --no-python"));
  const auto all = nlohmann::json::parse(read_text(output));
  EXPECT_EQ(all["ranks"], 2);
  const auto& rows = all["models"][0]["rows"];
  ASSERT_THAT(rows, SizeIs(2));
  EXPECT_EQ(rows[0]["who"], "ours");
  EXPECT_EQ(rows[1]["who"], "plain");
  EXPECT_GT(rows[1]["ours_over_it"].get<double>(), 0);
  EXPECT_EQ(rows[1]["largest_loss_difference"], 0.0);
  EXPECT_NEAR(rows[0]["last_loss"].get<double>(), 2.3, 1);  // a guess among ten, a little trained
}

TEST(BenchDataParallel, SaysWhatCannotBe) {
  const Ended ended = bench_data_parallel({"--ranks", "3", "--batch", "8"});
  EXPECT_EQ(ended.exit_code, 64);
  EXPECT_THAT(ended.err, HasSubstr("bench_data_parallel: --batch 8 is no multiple of --ranks 3\n"));
  if (!std::filesystem::exists("/dev/nvidiactl")) {
    const Ended cuda = bench_data_parallel({"--device", "cuda"});
    EXPECT_EQ(cuda.exit_code, 64);
    EXPECT_THAT(cuda.err, HasSubstr("there is no CUDA device here"));
  }
  EXPECT_THAT(bench_data_parallel({"--help"}).out, HasSubstr("DistributedDataParallel"));
}

}}  // namespace holdfast::test
