#include "holdfast/cli/launch/launch_verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace holdfast { namespace {

using testing::HasSubstr;

RankEnding left(int rank, int code, bool told = false) {
  return {.rank = rank, .ending = {.exit_code = code}, .told = told};
}
RankEnding killed(int rank, int signal, bool told = false) {
  return {.rank = rank, .ending = {.exit_code = 0, .signal = signal}, .told = told};
}
int code_of(const std::vector<RankEnding>& endings) { return verdict_of(endings).code; }

TEST(LaunchVerdict, IsTheCodeThatAllRanksHave) {
  EXPECT_EQ(code_of({left(0, 0), left(1, 0)}), 0);
  EXPECT_EQ(code_of({left(1, 75), left(0, 75)}), 75);
  EXPECT_EQ(code_of({left(0, 75)}), 75);
}

TEST(LaunchVerdict, SeventyFiveOnlyIfAllSaySo) {
  EXPECT_EQ(code_of({left(0, 75), left(1, 0)}), 70);
  EXPECT_EQ(code_of({left(0, 0), left(1, 75)}), 70);
  EXPECT_THAT(verdict_of(std::vector{left(0, 0), left(1, 75)}).text, HasSubstr("1 of 2"));
  EXPECT_EQ(code_of({left(0, 75), killed(1, SIGKILL)}), 128 + SIGKILL);
  EXPECT_EQ(code_of({left(0, 75), left(1, 1)}), 1);
}

TEST(LaunchVerdict, TheFirstFailureCounts) {
  EXPECT_EQ(code_of({left(2, 74), killed(0, SIGTERM, true), left(1, 75, true)}), 74);
  EXPECT_EQ(code_of({left(0, 0), killed(2, SIGSEGV), left(1, 78)}), 128 + SIGSEGV);
  EXPECT_THAT(verdict_of(std::vector{left(0, 0), killed(2, SIGSEGV)}).text,
              HasSubstr("rank 2: killed by SIGSEGV"));
  EXPECT_EQ(code_of({left(2, 1), killed(0, SIGKILL, true)}), 1);
}

}}  // namespace holdfast
