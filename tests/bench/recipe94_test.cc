// bench/recipe94 as a user runs it: that it works and says what its figures are, not how fast anything is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/subprocess.h"

namespace holdfast::test { namespace {

using testing::AllOf;
using testing::HasSubstr;

Ended recipe94(const std::vector<std::string>& options) {
  std::vector<std::string> words = {HOLDFAST_SOURCE_DIR "/bench/recipe94"};
  words.insert(words.end(), options.begin(), options.end());
  const std::string build = std::filesystem::path(HOLDFAST_BIN_DIR).parent_path();
  return Subprocess(words, std::map<std::string, std::string>{{"BUILD", build}})
      .wait(std::chrono::minutes(5));
}

TEST(Recipe94, OursAloneAtASmallSize) {
  const Ended ended = recipe94({"--data", "synthetic:1000", "--epochs", "1", "--width", "8", "--batch-size",
                                "128", "--against", "none"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, AllOf(HasSubstr("holdfast"), HasSubstr(" s of training"), HasSubstr(" s an epoch"),
                               HasSubstr("goals: ")));
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
