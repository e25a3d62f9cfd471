// bench_mirror as a program, on a tiny scale. No figure is judged here but counts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/nightly.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

using testing::HasSubstr;

Ended bench_mirror(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), HOLDFAST_BIN_DIR "/bench_mirror");
  return Subprocess(std::move(arguments)).wait(std::chrono::minutes(4));
}

TEST(BenchMirror, MeasuresEveryPart) {
  const TemporaryFolder folder;
  const std::string output = folder.path() / "result";
  std::vector<std::string> arguments = {"--quick", "--directory", folder.path().native(), "--output", output};
  if (!nightly()) arguments.push_back("--no-rclone");  // it starts rclone thirty times
  const Ended ended = bench_mirror(arguments);
  ASSERT_EQ(ended.exit_code, 0) << ended.out << ended.err;
  const auto all = nlohmann::json::parse(read_text(output + ".json"));
  std::map<std::string, double> rows;
  for (const auto& row : all["rows"]) rows[row["key"]] = row["value"];
  // Four seconds are none too long for the first copy, where other programs use the processor.
  const bool no_copy = ended.out.find("no copy was finished in 4 s") != std::string::npos;
  for (const char* const key :
       {"copy.directory.unlimited", "copy.directory.100", "processor.directory.100", "memory.directory.100",
        "memory.large.directory", "training.processor", "training.blocked.100", "gain.100.model.one",
        "gain.100.model.home", "gain.100.measured.one", "gain.100.measured.here", "gain.100.measured.home"}) {
    if (no_copy && std::string_view(key) == "gain.100.measured.home") continue;
    ASSERT_TRUE(rows.contains(key)) << key << "\n" << ended.out;
    EXPECT_GT(rows[key], 0) << key;
  }
  EXPECT_TRUE(rows.contains("training.lost"));
  EXPECT_LT(rows["memory.large.directory"], 64);
  EXPECT_LT(rows["gain.100.model.here"], rows["gain.100.model.one"]);
  EXPECT_THAT(read_text(output + ".svg"), HasSubstr("Seconds at risk"));
  int left = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    left += entry.path().filename().native().starts_with("holdfast-bench") ? 1 : 0;
  }
  EXPECT_EQ(left, 0) << "folders stay behind";
}

TEST(BenchMirror, SaysWhatCannotBe) {
  const Ended ended = bench_mirror({"--only", "speed"});
  EXPECT_EQ(ended.exit_code, 64);
  EXPECT_THAT(ended.err, HasSubstr("bench_mirror: there is no part 'speed' (--only; see --help)\n"));
  EXPECT_EQ(bench_mirror({"--directory", "/nowhere"}).exit_code, 64);
  EXPECT_THAT(bench_mirror({"--help"}).out, HasSubstr("seconds at risk"));
}

}}  // namespace holdfast::test
