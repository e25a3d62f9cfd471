#include "holdfast/planning/deadline_planner.h"

#include <gtest/gtest.h>

#include <optional>
#include <utility>

namespace holdfast::test { namespace {

using namespace std::chrono_literals;

constexpr SteadyTime kStart{1000h};
const Costs kCosts{.commit = 20s, .step = 2s};  // reserve: 30 + 2 + 4 s

Plan plan(Duration left, const Standing& standing, OnNotice policy = OnNotice::train_on,
          const Costs& costs = kCosts) {
  return plan_for_deadline(kStart, {.at = kStart + left}, costs, standing, policy);
}

TEST(Reserve, IsOneAndAHalfCommitsAStepTheAgreementAndFourSeconds) {
  EXPECT_EQ(reserve({.commit = 20s, .step = 2s, .agreement = 1s}), Duration(37s));
  EXPECT_EQ(reserve({}), Duration(4s));
}

TEST(TrainOn, CommitsAtOnceAsInsurance) {
  EXPECT_EQ(plan(120s, {}).move, Move::commit);
  EXPECT_EQ(plan(120s, {.insured = true}).move, Move::train);
  EXPECT_EQ(plan(120s, {.covered = true}).move, Move::train);
}

TEST(TrainOn, ThenTrainsUntilTheReserve) {
  EXPECT_EQ(plan(36s + 1ns, {.insured = true}).move, Move::train);
  EXPECT_EQ(plan(36s, {.insured = true}).move, Move::last_commit);
}

TEST(TrainOn, LeavesTheLastCommitItsTime) {
  EXPECT_TRUE(plan(56s + 1ns, {.insured = true}).room);
  EXPECT_FALSE(plan(56s, {.insured = true}).room);
}

TEST(TrainOn, WaitsOnceCoveredAndInsured) {
  EXPECT_EQ(plan(30s, {.covered = true, .insured = true}).move, Move::wait);
  EXPECT_FALSE(plan(30s, {.covered = true, .insured = true}).too_late);
  EXPECT_EQ(plan(-59s, {.covered = true, .insured = true}).move, Move::wait);
}

TEST(Planner, AMachineThatLivesAMinuteAfterItsDeadlineIsKept) {
  for (const OnNotice policy : {OnNotice::train_on, OnNotice::wait, OnNotice::exit}) {
    EXPECT_EQ(plan(-60s, {.covered = true}, policy).move, Move::go_on);
  }
}

TEST(Planner, NeverBeginsWhatCannotEnd) {
  for (const OnNotice policy : {OnNotice::train_on, OnNotice::wait}) {
    EXPECT_EQ(plan(20s, {}, policy).move, Move::last_commit);
    EXPECT_FALSE(plan(20s, {}, policy).too_late);
    EXPECT_EQ(plan(20s - 1ns, {}, policy).move, policy == OnNotice::wait ? Move::wait : Move::train);
    EXPECT_FALSE(plan(20s - 1ns, {}, policy).room && policy == OnNotice::train_on);
    EXPECT_TRUE(plan(20s - 1ns, {}, policy).too_late);
  }
  EXPECT_EQ(plan(19s, {}, OnNotice::exit).move, Move::stop);
  EXPECT_TRUE(plan(19s, {}, OnNotice::exit).too_late);
  const Costs slow{.commit = 300s};
  EXPECT_EQ(plan(306s, {}, OnNotice::train_on, slow).move, Move::last_commit);
  EXPECT_EQ(plan(120s, {}, OnNotice::train_on, slow).move, Move::train);
  EXPECT_TRUE(plan(120s, {}, OnNotice::train_on, slow).too_late);
}

TEST(Planner, CountsWhatIsLeftOfAWriteInFlight) {
  EXPECT_EQ(plan(35s, {.writing = 5s}).move, Move::last_commit);
  EXPECT_EQ(plan(34s, {.writing = 5s}).move, Move::train);
  EXPECT_TRUE(plan(34s, {.writing = 5s}).too_late);
  EXPECT_EQ(plan(34s, {.writing = 6s}).move, Move::last_commit) << "it may end in time after all";
}

TEST(Planner, AWriteThatTakesLongerThanMeasuredIsTheCost) {
  EXPECT_EQ(plan(60s, {.insured = true, .writing = 30s}).move, Move::train) << "reserve: 45 + 2 + 4 s";
  EXPECT_EQ(plan(51s, {.insured = true, .writing = 30s}).move, Move::last_commit);
  EXPECT_TRUE(plan(29s, {.insured = true, .writing = 30s}).too_late);
  EXPECT_EQ(plan(40s, {.insured = true, .writing = 30s}, OnNotice::train_on, {}).move, Move::last_commit)
      << "nothing else is known";
}

TEST(Planner, TriesWhileNothingIsMeasured) {
  EXPECT_EQ(plan(120s, {}, OnNotice::train_on, {}).move, Move::commit);
  EXPECT_EQ(plan(3s, {}, OnNotice::train_on, {}).move, Move::last_commit);
  EXPECT_EQ(plan(0s, {}, OnNotice::train_on, {}).move, Move::train) << "too late";
}

TEST(Wait, CommitsAtOnceAndWaits) {
  EXPECT_EQ(plan(120s, {}, OnNotice::wait).move, Move::last_commit);
  EXPECT_EQ(plan(120s, {.covered = true}, OnNotice::wait).move, Move::wait);
}

TEST(Exit, StopsAtOnce) {
  EXPECT_EQ(plan(120s, {}, OnNotice::exit).move, Move::stop);
  EXPECT_FALSE(plan(120s, {}, OnNotice::exit).too_late);
}

TEST(Hibernation, CommitsAtOnceAndTrainsOnUnderEveryPolicy) {
  for (const OnNotice policy : {OnNotice::train_on, OnNotice::wait, OnNotice::exit}) {
    const auto at = [&](Duration left, const Standing& standing) {
      return plan_for_deadline(kStart, {.at = kStart + left, .hibernates = true}, kCosts, standing, policy);
    };
    EXPECT_EQ(at(30s, {}).move, Move::commit);
    EXPECT_EQ(at(30s, {.insured = true}).move, Move::train);
    EXPECT_EQ(at(10s, {}).move, Move::train);
    EXPECT_TRUE(at(10s, {}).too_late);
    EXPECT_EQ(at(-60s, {}).move, Move::go_on);
  }
}

TEST(WithoutCommit, OnlyWhatNeedsNoneIsLeft) {
  struct Row {
    Move planned, kept_by_train_on, kept_by_wait;
  };
  for (const Row& row :
       {Row{Move::train, Move::train, Move::train}, Row{Move::commit, Move::train, Move::train},
        Row{Move::last_commit, Move::train, Move::wait}, Row{Move::wait, Move::wait, Move::wait},
        Row{Move::stop, Move::stop, Move::stop}, Row{Move::go_on, Move::go_on, Move::go_on}}) {
    for (const bool covered : {false, true}) {
      const Plan on_training =
          without_commit({.move = row.planned}, {.covered = covered}, OnNotice::train_on);
      const Plan waiting = without_commit({.move = row.planned}, {.covered = covered}, OnNotice::wait);
      EXPECT_EQ(on_training.move, row.kept_by_train_on);
      EXPECT_EQ(waiting.move, row.kept_by_wait);
      for (const Plan& left : {on_training, waiting}) {
        EXPECT_EQ(left.too_late, !covered);
        EXPECT_FALSE(left.room);
      }
    }
  }
}

TEST(Stop, CommitsWhereThereIsTime) {
  EXPECT_EQ(plan_for_stop(kStart, kStart + 25s, kCosts, {}).move, Move::stop);
  EXPECT_FALSE(plan_for_stop(kStart, kStart + 25s, kCosts, {}).too_late);
  EXPECT_FALSE(plan_for_stop(kStart, std::nullopt, kCosts, {}).too_late);
  EXPECT_TRUE(plan_for_stop(kStart, kStart + 19s, kCosts, {}).too_late);
  EXPECT_FALSE(plan_for_stop(kStart, kStart + 19s, kCosts, {.covered = true}).too_late);
  EXPECT_FALSE(plan_for_stop(kStart, kStart, kCosts, {}).too_late) << "the machine lives";
}

// Two minutes of notice, a disk and steps that take what was measured: what is lost is less than the reserve.
TEST(TrainOn, ReplaysANotice) {
  SteadyTime now = kStart;
  const Deadline deadline{.at = kStart + 120s};
  Standing standing;
  int commits = 0;
  int steps = 0;
  SteadyTime committing{};
  while (true) {
    const Plan next = plan_for_deadline(now, deadline, kCosts, standing, OnNotice::train_on);
    if (next.move == Move::train || next.move == Move::commit) {
      if (next.move == Move::commit) {
        ++commits;
        standing.insured = true;
        committing = now;
      }
      now += 2s;
      ++steps;
      standing.writing.reset();
      if (now < committing + 20s) standing.writing = now - committing;
      continue;
    }
    ASSERT_EQ(next.move, Move::last_commit);
    ++commits;
    break;
  }
  EXPECT_EQ(commits, 2);
  EXPECT_EQ(steps, 42) << "until 36 s before the deadline";
  EXPECT_LE(now + *kCosts.commit, deadline.at - 14s);
}

// A run with a mirror in virtual time: every commit and every copy takes what was measured, and the mirror
// finishes the copy that it has begun.
struct TwoTierRun {
  Duration commit;
  Duration step;
  Duration home;
  SteadyTime now = kStart;
  std::int64_t at = 0;                                              // step
  std::optional<std::pair<std::int64_t, SteadyTime>> writing = {};  // step, and when it is durable
  std::int64_t durable = -1;
  std::optional<std::pair<std::int64_t, SteadyTime>> copying = {};  // step, and when it is home
  std::int64_t newest_home = -1;

  void advance(Duration by) {
    for (const SteadyTime end = now + by; now < end; now += 100ms) {
      if (writing && now >= writing->second) durable = std::exchange(writing, std::nullopt)->first;
      if (copying && now >= copying->second) newest_home = std::exchange(copying, std::nullopt)->first;
      if (!copying && durable > newest_home) copying = {durable, now + home};
    }
  }
  Standing standing(bool insured) const {
    Standing standing{.covered = durable == at || (writing && writing->first == at), .insured = insured};
    if (writing) standing.writing = commit - (writing->second - now);
    if (copying) standing.going_home = copying->second - now;
    if (copying && durable > copying->first) standing.going_home += home;
    return standing;
  }
};

struct Told {
  std::int64_t home = -1;  // newest step that is home at the deadline
  std::int64_t last = -1;  // step of the last commit
  bool not_home = false;   // what the last plan said of it
  std::int64_t at = 0;     // step at the deadline
};

Told replay(Duration notice, Duration commit, Duration home, OnNotice policy = OnNotice::train_on) {
  TwoTierRun run{.commit = commit, .step = 2s, .home = home};
  const Costs costs{.commit = commit, .step = 2s, .home = home};
  const Deadline deadline{.at = kStart + notice};
  Told told;
  bool insured = false;
  while (run.now < deadline.at) {
    const Plan next = plan_for_deadline(run.now, deadline, costs, run.standing(insured), policy);
    if ((next.move == Move::commit || next.move == Move::last_commit) && !run.writing) {
      run.writing = {run.at, run.now + commit};
      insured = true;
      told.last = run.at;
    }
    if (next.move == Move::last_commit) told.not_home = next.not_home;
    if (next.move == Move::train || next.move == Move::commit) ++run.at;
    run.advance(next.move == Move::wait || next.move == Move::last_commit ? Duration(100ms) : Duration(2s));
  }
  run.advance(100ms);
  told.home = run.newest_home;
  told.at = run.at;
  return told;
}

TEST(Home, TheLastCommitIsHomeByTheDeadline) {
  for (const Duration home : {5s, 20s, 40s}) {
    for (const Duration commit : {1s, 5s}) {
      const Told told = replay(150s, commit, home);
      EXPECT_EQ(told.home, told.last) << home / 1s << " s home, commit " << commit / 1s << " s";
      EXPECT_FALSE(told.not_home);
      // It trains for as long as it can: up to reserve and way home before the deadline, and a step.
      const Duration trained = 150s - home - commit * 3 / 2 - 2s - kSpareTime - 2s;
      EXPECT_GE(told.at * 2s, trained);
    }
  }
}

TEST(Home, AnOlderOneStandsWhereTheLastCannotGetThere) {
  // The insurance is home after 82 s; nothing newer can be.
  const Told told = replay(120s, 2s, 80s);
  EXPECT_EQ(told.home, 0);
  EXPECT_GT(told.last, 40) << "what is durable here is as new as without a mirror";
  EXPECT_TRUE(told.not_home);
  const Told none = replay(120s, 2s, 300s);
  EXPECT_EQ(none.home, -1);
  EXPECT_TRUE(none.not_home);
  EXPECT_GT(none.last, 40);
}

TEST(Home, WhatThePlanSaysComesTrue) {
  for (Duration notice : {10s, 25s, 30s, 60s, 120s, 300s}) {
    for (Duration home : {1s, 7s, 33s, 60s, 110s}) {
      for (Duration commit : {1s, 4s, 20s}) {
        for (const OnNotice policy : {OnNotice::train_on, OnNotice::wait}) {
          const Told told = replay(notice, commit, home, policy);
          if (told.last < 0) continue;
          EXPECT_TRUE(told.not_home || told.home == told.last)
              << notice / 1s << " s of notice, " << commit / 1s << " s commit, " << home / 1s << " s home";
        }
      }
    }
  }
}

TEST(Home, AStopTellsWhatItsGraceLeaves) {
  Costs costs = kCosts;
  costs.home = 30s;
  EXPECT_FALSE(plan_for_stop(kStart, kStart + 60s, costs, {}).not_home);
  EXPECT_TRUE(plan_for_stop(kStart, kStart + 45s, costs, {}).not_home);
  EXPECT_FALSE(plan_for_stop(kStart, kStart + 45s, costs, {}).too_late)
      << "durable here is better than nothing";
  EXPECT_FALSE(plan_for_stop(kStart, kStart + 45s, costs, {.covered = true, .going_home = 40s}).not_home);
  EXPECT_TRUE(plan_for_stop(kStart, kStart + 45s, costs, {.covered = true, .going_home = 50s}).not_home);
  EXPECT_FALSE(plan_for_stop(kStart, std::nullopt, costs, {}).not_home);
  EXPECT_FALSE(plan_for_stop(kStart, kStart + 45s, kCosts, {}).not_home) << "no mirror";
}

}}  // namespace holdfast::test
