#include "holdfast/planning/save_policy.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "holdfast/base/error.h"

namespace holdfast { namespace {

using namespace std::chrono_literals;

constexpr SteadyTime kStart{1000h};

TEST(SavePolicy, WhicheverComesFirst) {
  SavePolicy policy({5min, SaveEvery::steps(100)}, kStart, 40);
  policy.saved(kStart, 40);
  EXPECT_FALSE(policy.due(kStart + 4min, 139));
  EXPECT_TRUE(policy.due(kStart + 4min, 140));
  EXPECT_TRUE(policy.due(kStart + 5min, 41));
}

TEST(SavePolicy, CountsFromTheLastSave) {
  SavePolicy policy({SaveEvery(30s), SaveEvery::steps(10)}, kStart, 0);
  policy.saved(kStart + 15s, 9);
  EXPECT_FALSE(policy.due(kStart + 44s, 18));
  EXPECT_TRUE(policy.due(kStart + 45s, 18));
  EXPECT_TRUE(policy.due(kStart + 44s, 19));
}

TEST(SavePolicy, TheFirstSaveComesWithinHalfAMinute) {
  for (const SaveEvery& every : {SaveEvery(5min), SaveEvery::steps(1000), SaveEvery::automatic()}) {
    SavePolicy policy({every}, kStart, 0);
    EXPECT_FALSE(policy.due(kStart + 5s, 1));
    EXPECT_TRUE(policy.due(kStart + 20s, 2)) << "with steps of 10 s it begins within 30 s";
    policy.saved(kStart + 20s, 2);
    EXPECT_FALSE(policy.due(kStart + 40s, 4));
  }
  EXPECT_TRUE(SavePolicy({10s}, kStart, 0).due(kStart + 10s, 1)) << "never later than the interval";
}

TEST(SavePolicy, TheEarlyFirstSaveDoesNotMoveTheStepsThatAreSaved) {
  SavePolicy policy({SaveEvery::steps(20)}, kStart, 0);
  policy.saved(kStart + 20s, 3);
  EXPECT_FALSE(policy.due(kStart + 2min, 19));
  EXPECT_TRUE(policy.due(kStart + 2min, 20));
  policy.saved(kStart + 2min, 20);
  EXPECT_FALSE(policy.due(kStart + 4min, 39));
  EXPECT_TRUE(policy.due(kStart + 4min, 40));
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
  EXPECT_THROW(SavePolicy({SaveEvery::automatic({.stall_budget = 0})}, kStart, 0), UsageError);
  EXPECT_THROW(SavePolicy({SaveEvery::automatic({.stall_budget = 1.5})}, kStart, 0), UsageError);
  EXPECT_THROW(SavePolicy({SaveEvery::automatic({.shortest = 0s})}, kStart, 0), UsageError);
  EXPECT_THROW(SavePolicy({SaveEvery::automatic({.shortest = 2min, .longest = 1min})}, kStart, 0),
               UsageError);
}

TEST(SavePolicy, TellsTheStepAtWhichItFallsDueNext) {
  EXPECT_EQ(SavePolicy({5min}, kStart, 0).next_due_step(kStart), std::nullopt);
  SavePolicy policy({5min, SaveEvery::steps(20), SaveEvery::steps(30)}, kStart, 7);
  EXPECT_EQ(policy.next_due_step(kStart), 27);
  EXPECT_FALSE(policy.due(kStart, 26));
  EXPECT_TRUE(policy.due(kStart, 27));
  policy.saved(kStart + 1s, 40);
  EXPECT_EQ(policy.next_due_step(kStart + 1s), 60);
  policy.hurry_until(kStart + 30min);
  EXPECT_EQ(policy.next_due_step(kStart + 1min), 50);
}

TEST(SavePolicy, ChoosesItsIntervalByWhatASaveCosts) {
  SavePolicy policy({SaveEvery::automatic()}, kStart, 0);
  EXPECT_TRUE(policy.automatic());
  EXPECT_TRUE(policy.due(kStart + 1min, 1)) << "the first comes early: it measures";
  policy.saved(kStart + 1min, 1);
  policy.measured({.stall = 2s, .write = 1s});
  ASSERT_TRUE(policy.chosen_interval());
  EXPECT_EQ(*policy.chosen_interval(), plan_interval({.stall = 2s, .write = 1s}, hazard_of({}), {}));
  EXPECT_GE(*policy.chosen_interval(), 400s);
  EXPECT_FALSE(policy.due(kStart + 1min + *policy.chosen_interval() - 1ns, 1'000'000));
  EXPECT_TRUE(policy.due(kStart + 1min + *policy.chosen_interval(), 2));
}

TEST(SavePolicy, LearnsFromEarlierLives) {
  const auto chosen = [](const std::vector<MachineLife>& lives) {
    SavePolicy policy({SaveEvery::automatic()}, kStart, 0);
    policy.learn(lives);
    policy.measured({.stall = 100ms, .write = 1s});
    return *policy.chosen_interval();
  };
  EXPECT_GT(chosen(std::vector<MachineLife>(50, {24h, true})), chosen({}));
}

TEST(SavePolicy, AGivenIntervalIsNotChosen) {
  SavePolicy policy({5min, SaveEvery::steps(10)}, kStart, 0);
  EXPECT_FALSE(policy.automatic());
  policy.measured({.stall = 100s, .write = 1h});
  EXPECT_FALSE(policy.chosen_interval());
  EXPECT_TRUE(policy.due(kStart + 5min, 1));
}

TEST(SavePolicy, AtRiskItSavesTwiceAsOften) {
  SavePolicy policy({10min, SaveEvery::steps(9)}, kStart, 0);
  policy.saved(kStart, 0);
  policy.hurry_until(kStart + 30min);
  EXPECT_FALSE(policy.due(kStart + 5min - 1ns, 4));
  EXPECT_TRUE(policy.due(kStart + 5min, 0));
  EXPECT_TRUE(policy.due(kStart, 5));
  policy.saved(kStart + 29min, 0);
  EXPECT_FALSE(policy.due(kStart + 30min, 8)) << "the time is over";
  policy.hurry_until(kStart + 40min);
  policy.hurry_until(kStart + 35min);
  EXPECT_TRUE(policy.due(kStart + 39min, 0)) << "a second warning does not shorten the first";
  SavePolicy single({SaveEvery::steps(1)}, kStart, 0);
  single.hurry_until(kStart + 1min);
  EXPECT_FALSE(single.due(kStart, 0));
  EXPECT_TRUE(single.due(kStart, 1));
}

TEST(SaveEvery, AsAnOptionSaysIt) {
  EXPECT_EQ(parse_save_every("90s")->time, 90s);
  EXPECT_EQ(parse_save_every("500steps")->step_count, 500);
  EXPECT_TRUE(parse_save_every("auto")->chosen);
  for (const char* text :
       {"", "5", "0s", "-5s", "0steps", "-1steps", "steps", "x steps", "automatic", "1.5steps"}) {
    EXPECT_FALSE(parse_save_every(text)) << text;
  }
}

TEST(SaveTriggers, AreWrittenAsTheirHeaderSays) {
  struct Options {
    SaveTriggers every = SaveEvery::automatic();
  };
  EXPECT_TRUE(Options{}.every.at(0).chosen);
  EXPECT_EQ((Options{.every = 5min}.every.at(0).time), Duration(5min));
  EXPECT_EQ((Options{.every = {5min}}.every.at(0).time), Duration(5min));
  EXPECT_EQ((Options{.every = SaveEvery::steps(500)}.every.at(0).step_count), 500);
  EXPECT_EQ((Options{.every = SaveEvery(2h)}.every.at(0).time), Duration(2h));
  EXPECT_EQ((Options{.every = {10min, SaveEvery::steps(500)}}.every.size()), 2U);
  EXPECT_TRUE((Options{.every = {}}.every.empty()));
  EXPECT_EQ((Options{.every = std::vector<SaveEvery>(3)}.every.size()), 3U);
  Options options;
  options.every = 1min;
  EXPECT_EQ(options.every.size(), 1U);
  options.every = {};
  EXPECT_TRUE(options.every.empty());
}

TEST(SavePolicy, KnowsItsShortestInterval) {
  const auto interval = [](const SaveTriggers& every, Duration step) {
    return SavePolicy(every, SteadyTime{}, 0).interval(step);
  };
  EXPECT_EQ(interval({}, 1s), std::nullopt);
  EXPECT_EQ(interval(5min, 1s), Duration(5min));
  EXPECT_EQ(interval({5min, SaveEvery::steps(100)}, 2s), Duration(200s));
  EXPECT_EQ(interval({5min, SaveEvery::steps(1000)}, 2s), Duration(5min));
  EXPECT_EQ(interval(SaveEvery::steps(10), Duration::zero()), std::nullopt) << "no step was measured";
  EXPECT_EQ(interval(SaveEvery::steps(std::numeric_limits<std::int64_t>::max()), 1h), std::nullopt)
      << "never";
  EXPECT_EQ(interval(SaveEvery::automatic(), 1s), Duration(1min)) << "before its first save";
}

}}  // namespace holdfast
