#include "holdfast/checkpoint/save_policy.h"

#include <gtest/gtest.h>

#include "holdfast/base/error.h"

namespace holdfast {
namespace {

using namespace std::chrono_literals;

constexpr SteadyTime kStart{1000h};

TEST(SavePolicy, WhicheverComesFirst) {
  SavePolicy policy({5min, SaveEvery::steps(100)}, kStart, 40);
  EXPECT_FALSE(policy.due(kStart + 4min, 139));
  EXPECT_TRUE(policy.due(kStart + 4min, 140));
  EXPECT_TRUE(policy.due(kStart + 5min, 41));
}

TEST(SavePolicy, CountsFromTheLastSave) {
  SavePolicy policy({SaveEvery(30s), SaveEvery::steps(10)}, kStart, 0);
  policy.saved(kStart + 20s, 9);
  EXPECT_FALSE(policy.due(kStart + 49s, 18));
  EXPECT_TRUE(policy.due(kStart + 50s, 18));
  EXPECT_TRUE(policy.due(kStart + 49s, 19));
}

TEST(SavePolicy, WithoutTriggersNeverDue) {
  const SavePolicy policy({}, kStart, 0);
  EXPECT_FALSE(policy.due(kStart + 1000h, 1'000'000));
}

TEST(SavePolicy, RefusesWhatIsNotAnInterval) {
  EXPECT_THROW(SavePolicy({SaveEvery(0s)}, kStart, 0), UsageError);
  EXPECT_THROW(SavePolicy({SaveEvery(-1s)}, kStart, 0), UsageError);
  EXPECT_THROW(SavePolicy({SaveEvery::steps(0)}, kStart, 0), UsageError);
  EXPECT_THROW(SavePolicy({5min, SaveEvery::steps(-3)}, kStart, 0), UsageError);
  EXPECT_THROW(SavePolicy({SaveEvery()}, kStart, 0), UsageError);
}

}  // namespace
}  // namespace holdfast
