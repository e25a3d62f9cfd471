// The power fails after every single operation of a run, in every way a disk may take it: what was
// acknowledged is there, recovery goes on, and no wrong byte is taken for good.
//
//   HOLDFAST_NIGHTLY=1                    100 million states: 3 GiB, an hour or two
//   HOLDFAST_POWER_LOSS_STATES=N          N of them
//   HOLDFAST_POWER_LOSS_REPLAY=POINT      the one cut that a failure names
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "holdfast/base/log.h"
#include "power_loss/explorer.h"
#include "support/nightly.h"

namespace holdfast::test { namespace {

using power_loss::explore;
using power_loss::Request;
using power_loss::Result;

const char* variable(const char* name) {
  const char* text = std::getenv(name);
  return text != nullptr && *text != '\0' ? text : nullptr;
}

void run(Request request, const char* title) {
  set_log_level(LogLevel::off);
  if (const char* states = variable("HOLDFAST_POWER_LOSS_STATES"))
    request.states = std::strtoull(states, nullptr, 10);
  if (const char* point = variable("HOLDFAST_POWER_LOSS_REPLAY")) {
    request.replay = power_loss::point_from_text(point);
    ASSERT_TRUE(request.replay) << point;
  }
  const Result result = explore(request);
  for (const power_loss::Failure& failure : result.failures) {
    ADD_FAILURE() << failure.text
                  << "replay: HOLDFAST_POWER_LOSS_REPLAY=" << power_loss::to_text(failure.point) << " "
                  << std::filesystem::read_symlink("/proc/self/exe").native() << " --gtest_filter=PowerLoss."
                  << testing::UnitTest::GetInstance()->current_test_info()->name();
  }
  EXPECT_EQ(result.lost + result.stuck + result.silent, 0u);
  if (request.replay) return;
  EXPECT_GE(result.states, request.states);
  EXPECT_GT(result.second, 0u);
  std::printf("%s%s\n", result.summary().c_str(), title);
  std::printf(
      "  %llu starts judged, %llu of them after a second cut; %llu operations cut after, in %llu histories\n",
      static_cast<unsigned long long>(result.judged), static_cast<unsigned long long>(result.second),
      static_cast<unsigned long long>(result.points), static_cast<unsigned long long>(result.histories));
}

TEST(PowerLoss, NothingAcknowledgedIsLostOfOpaqueFiles) {
  run({.states = nightly() ? 100'000'000U : 100'000U}, "");
}

TEST(PowerLoss, NothingAcknowledgedIsLostOfTheRealFormat) {
  run({.states = nightly() ? 1'000'000U : 7'000U, .files = power_loss::real_files},
      " (files of the real format)");
}

}}  // namespace holdfast::test
