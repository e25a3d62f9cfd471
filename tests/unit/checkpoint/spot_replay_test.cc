// bench/spot_replay, small: what the planner and the save policy make of machine lives, counted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "bench/spot_replay/lives.h"
#include "bench/spot_replay/replay.h"
#include "holdfast/base/error.h"

namespace holdfast::bench { namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<Duration> read(const std::string& text) {
  std::istringstream csv(text);
  return read_machine_lives(csv, "lives.csv");
}

std::string refusal(const std::string& text) {
  try {
    read(text);
  } catch (const UsageError& error) {
    return error.what();
  }
  return {};
}

ReplayOptions all_noticed() {
  ReplayOptions options;
  options.step = 2s;
  options.missed = 0;
  options.commit_spread = 0;
  return options;
}

TEST(MachineLives, AreReadFromTheFirstColumn) {
  EXPECT_THAT(read("seconds,zone\n600,a\r\n\n 1.5 ,b\n"), ElementsAre(600s, 1500ms));
  EXPECT_THAT(read("60"), ElementsAre(60s));
}

TEST(MachineLives, WhatIsNoLifeIsRefusedWithItsLine) {
  EXPECT_THAT(refusal("60\nsoon\n"), HasSubstr("lives.csv, line 2: 'soon'"));
  EXPECT_THAT(refusal("60\n-5\n"), HasSubstr("line 2"));
  EXPECT_THAT(refusal("60\n0\n"), HasSubstr("more than 0"));
  EXPECT_THAT(refusal("60\n1e300\n"), HasSubstr("ten years"));
  EXPECT_THAT(refusal("60\nnan\n"), HasSubstr("line 2"));
  EXPECT_THAT(refusal("60\n,7\n"), HasSubstr("line 2"));
  EXPECT_THAT(refusal(""), HasSubstr("no lives"));
  EXPECT_THAT(refusal("seconds\n"), HasSubstr("no lives"));
  EXPECT_THROW(read_machine_lives(std::filesystem::path("/nowhere/lives.csv")), UsageError);
}

TEST(MachineLives, AreDrawnWithTheQuantilesOfTheTraces) {
  auto lives = draw_machine_lives(20'000, 3);
  EXPECT_EQ(lives, draw_machine_lives(20'000, 3));
  EXPECT_NE(lives, draw_machine_lives(20'000, 4));
  std::sort(lives.begin(), lives.end());
  double hours = 0;
  for (const Duration life : lives) hours += std::chrono::duration<double, std::ratio<3600>>(life).count();
  EXPECT_NEAR(hours / 20'000, 2, 0.06);
  EXPECT_NEAR(std::chrono::duration<double>(lives[10'000]).count(), 39 * 60, 90);
  EXPECT_NEAR(std::chrono::duration<double>(lives[5000]).count(), 600, 20);
}

TEST(SpotReplay, WhoIsToldInTimeLosesNoStep) {
  auto lives = draw_machine_lives(300, 5);
  const ReplayOptions options = all_noticed();
  // Long enough for a first step before the notice.
  std::erase_if(lives, [&](Duration life) { return life < options.startup + options.notice + 10s; });
  const Replayed ours = replay_holdfast(lives, options);
  EXPECT_GT(ours.preemptions, 200);
  EXPECT_EQ(ours.noticed, ours.preemptions);
  EXPECT_EQ(ours.unfinished, 0) << "a commit was begun that could not end";
  EXPECT_EQ(ours.most_steps_lost, 0) << "steps were made after the last commit";
}

TEST(SpotReplay, WhoBeginsUnderANoticeTriesItsFirstSaveAndStartsNoOtherThatCannotFinish) {
  const ReplayOptions options = all_noticed();
  std::vector<Duration> lives;
  for (Duration life = options.startup; life < options.startup + options.notice; life += 1s)
    lives.push_back(life);
  const Replayed ours = replay_holdfast(lives, options);
  EXPECT_LE(ours.unfinished, options.commit / 1s) << "lives that end before a first save could";
  EXPECT_LE(ours.most_steps_lost, 2 * options.commit / options.step)
      << "those made while the first was written, and then those for which a second had no time any more";
}

TEST(SpotReplay, ALongLifeLosesItsStartUpAndItsReserve) {
  ReplayOptions options = all_noticed();
  options.poll = 0s;
  const Replayed ours = replay_holdfast({4h}, options);
  // 1.5 commits, a step, 4 s; and at each save its stall.
  const Duration rest = ours.up - ours.kept - options.startup - ours.saves * options.stall;
  EXPECT_LE(rest, 30s + 2 * options.step + 4s);
  EXPECT_GE(rest, options.commit);
}

TEST(SpotReplay, WithoutANoticeTheIntervalIsLost) {
  ReplayOptions options = all_noticed();
  options.missed = 1;
  options.every = 10min;
  const Replayed ours = replay_holdfast({3min + 9min, 3min + 35min}, options);
  EXPECT_EQ(ours.noticed, 0);
  EXPECT_EQ(ours.saves, 5);
  EXPECT_EQ(ours.kept, 20s + 20s + 30min) << "the early save of both, three intervals of the second";
}

TEST(SpotReplay, AChosenIntervalLosesLessThanTenMinutesDo) {
  const auto lives = draw_machine_lives(300, 5);
  ReplayOptions options = all_noticed();
  options.missed = 1;
  const Replayed chosen = replay_holdfast(lives, options);
  options.every = 10min;
  EXPECT_GT(chosen.kept, replay_holdfast(lives, options).kept);
}

TEST(SpotReplay, MeetsItsGoalOnDrawnLives) {
  const auto lives = draw_machine_lives(500, 1);
  ReplayOptions options;
  options.step = 2s;
  EXPECT_LE(replay_holdfast(lives, options).lost_minutes(), 5);
  EXPECT_GE(replay_epochs(lives, options, 60min, true, "").lost_minutes(), 20);
  EXPECT_GE(replay_epochs(lives, options, 30min, false, "").lost_minutes(), 11);
}

TEST(SpotReplay, EpochsCountWhole) {
  ReplayOptions options = all_noticed();
  options.poll = 0s;
  const Duration epoch = 1h;
  const Duration two = options.startup + 2 * (epoch + options.commit);
  EXPECT_EQ(replay_epochs({two}, options, epoch, false, "").kept, 2h);
  EXPECT_EQ(replay_epochs({two - 1s}, options, epoch, false, "").kept, 1h);
  EXPECT_EQ(replay_epochs({two}, options, epoch, true, "").kept, 1h) << "it slept from the notice on";
}

TEST(SpotReplay, AMachineThatNeverGetsToAStepLosesItsLife) {
  const Replayed ours = replay_holdfast({1s, 2min, 3min}, all_noticed());
  EXPECT_EQ(ours.kept, 0s);
  EXPECT_EQ(ours.startup, ours.up);
  EXPECT_EQ(ours.saves, 0);
}

TEST(Standby, BootsAtTheNoticeAndTheDeadlineComesFirst) {
  ReplayOptions options = all_noticed();
  options.poll = 0s;
  const std::vector<Duration> lives{1h, 1h};
  const Replayed alone = replay_holdfast(lives, options);
  const Replayed two = replay_standby(lives, options, StandBy::on_notice);
  EXPECT_EQ(two.preemptions, 2);
  EXPECT_EQ(two.most_steps_lost, 0);
  // The second is up 2 min before the first one ends. Both end with their last commit, 14 to 16 s before.
  const Duration wall = lives[0] - options.notice + lives[1];
  EXPECT_LE(two.up, wall - 16s + options.step);
  EXPECT_GE(two.up, wall - 16s - options.commit);
  EXPECT_LE(two.twice, options.notice);
  EXPECT_GT(two.twice, options.notice - 36s);
  EXPECT_EQ(two.kept, alone.kept);
}

TEST(Standby, ThatIsReadyBeforeTheDeadlineTakesOverAtOnce) {
  ReplayOptions options = all_noticed();
  options.poll = 0s;
  options.startup = 60s;
  const Replayed two = replay_standby({1h, 1h}, options, StandBy::on_notice);
  EXPECT_EQ(two.startup, options.startup + options.hand_over);
  // Until it is ready, and for the last commit.
  EXPECT_GE(two.twice, options.startup + options.commit);
  EXPECT_LE(two.twice, options.startup + options.commit + 2 * options.step);
}

TEST(Standby, ThatDiesIsReplacedAtItsEnd) {
  ReplayOptions options = all_noticed();
  options.poll = 0s;
  options.startup = 60s;
  const Replayed two = replay_standby({1h, 20s, 1h}, options, StandBy::on_notice);
  EXPECT_EQ(two.preemptions, 2) << "the second machine never had the run";
  EXPECT_EQ(two.startup, options.startup + options.hand_over);
  EXPECT_GE(two.twice, 20s + options.startup + options.commit);
}

TEST(Standby, WithoutANoticeNobodyStandsBy) {
  ReplayOptions options = all_noticed();
  options.missed = 1;
  const auto lives = draw_machine_lives(100, 5);
  const Replayed two = replay_standby(lives, options, StandBy::on_notice);
  EXPECT_EQ(two.twice, 0s);
  EXPECT_EQ(two.kept, replay_holdfast(lives, options).kept);
  EXPECT_EQ(two.up, replay_holdfast(lives, options).up);
}

TEST(Standby, ALostMachinesRunGoesToItsStandbyAfterTheSilence) {
  ReplayOptions options = all_noticed();
  options.missed = 1;
  const Replayed two = replay_standby({1h, 3h}, options, StandBy::always);
  EXPECT_EQ(two.startup, options.startup + options.silence + options.hand_over);
  EXPECT_EQ(two.twice, 1h - options.startup);
}

TEST(Standby, OnDrawnLivesEarlierIsBetterAndDearer) {
  const auto lives = draw_machine_lives(200, 1);
  ReplayOptions options;
  options.step = 2s;
  const double alone = replay_holdfast(lives, options).lost_minutes();
  const Replayed notice = replay_standby(lives, options, StandBy::on_notice);
  const Replayed rebalance = replay_standby(lives, options, StandBy::on_rebalance);
  const Replayed always = replay_standby(lives, options, StandBy::always);
  EXPECT_LE(notice.lost_minutes(), alone - 1.5);
  EXPECT_LT(rebalance.lost_minutes(), notice.lost_minutes());
  EXPECT_LT(always.lost_minutes(), rebalance.lost_minutes());
  EXPECT_LE(rebalance.twice_minutes(), 3);
  EXPECT_LE(notice.twice_minutes(), 2);
}

}}  // namespace holdfast::bench
