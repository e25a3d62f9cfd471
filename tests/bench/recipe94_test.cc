// bench/recipe94 as a user runs it: that it works and says what its figures are, not how fast anything is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/subprocess.h"

namespace holdfast::test { namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Ended recipe94(const std::vector<std::string>& options) {
  std::vector<std::string> words = {HOLDFAST_SOURCE_DIR "/bench/recipe94"};
  words.insert(words.end(), options.begin(), options.end());
  const std::string build = std::filesystem::path(HOLDFAST_BIN_DIR).parent_path();
  return Subprocess(words, std::map<std::string, std::string>{{"BUILD", build}})
      .wait(std::chrono::minutes(5));
}

TEST(Recipe94, OursAloneAtASmallSize) {
  const Ended ended = recipe94({"--data", "synthetic:256", "--epochs", "1", "--width", "4", "--batch-size",
                                "64", "--against", "none"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, AllOf(HasSubstr("holdfast"), HasSubstr(" s of training"),
                               HasSubstr(" s an epoch, start-up included"), HasSubstr("goals: ")));
}

// 31 updates an epoch: the first ends before the clock begins.
TEST(Recipe94, TheClockBeginsAtStep30AndTheFiguresAreJson) {
  const TemporaryFolder folder;
  const std::string file = folder.path() / "figures.json";
  const Ended ended =
      recipe94({"--data", "synthetic:500", "--epochs", "3", "--width", "2", "--batch-size", "16", "--threads",
                "1", "--against", "none", "--stem", "imagenet", "--determinism", "--output", file});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, AllOf(Not(HasSubstr("start-up included")), HasSubstr("\nwithout determinism"),
                               HasSubstr("deterministic kernels take ")));
  std::ifstream in(file);
  const auto all = nlohmann::json::parse(in);
  EXPECT_EQ(all["epochs"], 3);
  ASSERT_EQ(all["rows"].size(), 2u);
  for (const auto& row : all["rows"]) {
    EXPECT_EQ(row["from_step"], 30) << row;
    ASSERT_EQ(row["epoch_seconds"].size(), 2u) << row;
    const double one = row["epoch_seconds"][0], other = row["epoch_seconds"][1];
    EXPECT_GT(std::min(one, other), 0);
    EXPECT_NEAR(row["median_epoch_seconds"].get<double>(), (one + other) / 2, 1e-4 * (one + other));
  }
  EXPECT_EQ(all["rows"][0]["who"], "holdfast");
  EXPECT_GT(all["rows"][1]["determinism_times_the_time"].get<double>(), 0);
}

TEST(Recipe94, WhatIsWrongIsSaidFirst) {
  const Ended mode = recipe94({"--against", "fast"});
  EXPECT_EQ(mode.exit_code, 1);
  EXPECT_THAT(mode.err, AllOf(HasSubstr("recipe94: "),
                              testing::AnyOf(HasSubstr("--against fast"), HasSubstr("bench/peers/install"))));
  const Ended data = recipe94({"--data", "/nowhere", "--against", "none"});
  EXPECT_EQ(data.exit_code, 1);
  EXPECT_THAT(data.err, HasSubstr("/nowhere"));
}

}}  // namespace holdfast::test
