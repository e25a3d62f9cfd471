// bench_handover as a program, on a tiny scale. No time is judged here but that it is told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/subprocess.h"

namespace holdfast::test { namespace {

using testing::HasSubstr;

Ended bench_handover(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), HOLDFAST_BIN_DIR "/bench_handover");
  return Subprocess(std::move(arguments)).wait(std::chrono::minutes(4));
}

TEST(BenchHandover, MeasuresHandOversAndWhatAStandbyCosts) {
  const TemporaryFolder folder;
  const std::string output = folder.path() / "result.json";
  const Ended ended = bench_handover({"--directory", folder.path(), "--megabytes", "4", "--repetitions", "1",
                                      "--pairs", "1", "--window", "0.5", "--output", output});
  ASSERT_EQ(ended.exit_code, 0) << ended.out << ended.err;
  std::map<std::string, double> rows;
  const auto all = nlohmann::json::parse(read_text(output));
  for (const auto& row : all["rows"]) rows[row["key"]] = row["value"];
  for (const char* const key : {"shared.4.total", "shared.4.commit", "shared.4.rest", "shared.4.from_end",
                                "shared.4.reading", "shared.4.ratio"}) {
    ASSERT_TRUE(rows.contains(key)) << key << "\n" << ended.out;
    EXPECT_GT(rows[key], 0) << key;
  }
  EXPECT_TRUE(rows.contains("cost.lost"));
  EXPECT_GE(rows["cost.processor"], 0);
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    EXPECT_EQ(entry.path().filename(), "result.json") << "a folder stays behind";
  }
}

TEST(BenchHandover, SaysWhatCannotBe) {
  const Ended ended = bench_handover({"--directory", "/nowhere"});
  EXPECT_EQ(ended.exit_code, 64);
  EXPECT_THAT(ended.err, HasSubstr("there is no directory /nowhere"));
  EXPECT_EQ(bench_handover({"--repetitions", "0"}).exit_code, 64);
  EXPECT_THAT(bench_handover({"--help"}).out, HasSubstr("SIGTERM at the holder"));
}

}}  // namespace holdfast::test
