#include "holdfast/base/env.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "holdfast/base/error.h"

namespace holdfast { namespace {

using namespace std::chrono_literals;

constexpr EnvVariable kProbe{"HOLDFAST_TEST_PROBE", "only in this test"};

class Env : public testing::Test {
 protected:
  ~Env() override { unsetenv(kProbe.name); }
  static void set(const char* value) { setenv(kProbe.name, value, 1); }
  static std::string refusal(auto&& read) {
    try {
      read();
    } catch (const UsageError& error) {
      return error.what();
    }
    return "not refused";
  }
};

TEST_F(Env, UnsetAndEmptyMeanNotGiven) {
  EXPECT_EQ(env_text(kProbe), std::nullopt);
  set("");
  EXPECT_EQ(env_text(kProbe), std::nullopt);
  EXPECT_EQ(env_duration(kProbe), std::nullopt);
  EXPECT_EQ(env_int(kProbe, 0, 9), std::nullopt);
  EXPECT_EQ(env_flag(kProbe), std::nullopt);
}

TEST_F(Env, ReadsDurationsIntegersAndFlags) {
  set("25s");
  EXPECT_EQ(env_duration(kProbe), Duration(25s));
  set("7");
  EXPECT_EQ(env_int(kProbe, 0, 9), 7);
  set("yes");
  EXPECT_EQ(env_flag(kProbe), true);
  set("0");
  EXPECT_EQ(env_flag(kProbe), false);
  set("True");
  EXPECT_EQ(env_flag(kProbe), true);
  set("FALSE");
  EXPECT_EQ(env_flag(kProbe), false);
}

TEST_F(Env, WrongValuesAreRefusedByName) {
  set("25");
  EXPECT_EQ(
      refusal([] { env_duration(kProbe); }),
      "environment variable HOLDFAST_TEST_PROBE=25: expected a duration with its unit, such as 25s or 2min");
  EXPECT_EQ(refusal([] { env_int(kProbe, 0, 9); }),
            "environment variable HOLDFAST_TEST_PROBE=25: expected a whole number from 0 to 9");
  EXPECT_EQ(refusal([] { env_flag(kProbe); }),
            "environment variable HOLDFAST_TEST_PROBE=25: expected 1 or 0");
}

TEST_F(Env, AllAreListedWithTheirMeaning) {
  bool grace = false;
  for (const EnvVariable& variable : env_variables()) {
    EXPECT_FALSE(std::string(variable.meaning).empty()) << variable.name;
    grace = grace || std::string(variable.name) == "HOLDFAST_TERM_GRACE";
  }
  EXPECT_TRUE(grace);
}

}}  // namespace holdfast
