#include "holdfast/ledger/goodput.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "support/ledger_text.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::SizeIs;

Duration sum(const TimeSplit& time) {
  return time.startup + time.kept + time.lost + time.waited + time.paused + time.ending + time.unknown;
}

std::vector<LifeEnding> endings(const RunAccount& run) {
  std::vector<LifeEnding> all;
  for (const LifeAccount& life : run.lives) all.push_back(life.ending);
  return all;
}

TEST(Goodput, OfNothingIsZero) {
  EXPECT_EQ(account_for({}).goodput, 0);
  EXPECT_EQ(account_for(lives_of({"", "garbage\n"})).never_started, 2);
}

TEST(Goodput, OfMoreLivesThanThereIsTimeIsBounded) {
  std::vector<LedgerLife> lives;
  for (AttemptNumber i = 1; i <= 400; ++i) {
    LedgerLife life;
    life.attempt = i;
    life.started = true;
    life.startup = 366 * 24h;
    life.last_up = 366 * 24h;
    life.marks.push_back({.up = {}, .step = 0, .waited = {}});
    life.marks.push_back({.up = life.last_up, .step = 0, .waited = {}});
    lives.push_back(life);
  }
  const RunAccount run = account_for(lives);
  EXPECT_EQ(run.time.up, 100 * 366 * 24h);
  EXPECT_EQ(run.time.startup, 100 * 366 * 24h);
}

TEST(Goodput, OfOneWholeLife) {
  LedgerText text(1, 0, 0, 1000, 10, "a");
  text.progress(60, 50).commit(112, 100, 110).end(120, "complete", 0, 100, 10);
  const RunAccount run = account_for(lives_of({text.text()}));
  EXPECT_THAT(endings(run), ElementsAre(LifeEnding::complete));
  EXPECT_EQ(run.time.up, 120s);
  EXPECT_EQ(run.time.startup, 10s);
  EXPECT_EQ(run.time.kept, 100s);
  EXPECT_EQ(run.time.ending, 10s);
  EXPECT_EQ(run.time.lost, 0s);
  EXPECT_DOUBLE_EQ(run.goodput, 100.0 / 120);
  EXPECT_EQ(run.interruptions, 0);
  EXPECT_EQ(run.risk_steps, 0);
}

// Life 1 vanishes 30 steps after its last commit; life 2 computes them again, and is told in time.
TEST(Goodput, StepsComputedAgainAreLost) {
  LedgerText first(1, 0, 0, 1000, 10, "a");
  first.commit(75, 60, 70).progress(100, 90);
  LedgerText second(2, 60, 1, 2000, 20, "b");
  second.notice(100, "deadline", 120)
      .commit(124, 160, 120)
      .line("pause", 120, R"("step":160)")
      .progress(200, 160);
  LedgerText third(3, 160, 2, 3000, 20, "c");
  third.progress(60, 200);
  const RunAccount run = account_for(lives_of({first.text(), second.text(), third.text()}));
  EXPECT_THAT(endings(run), ElementsAre(LifeEnding::vanished, LifeEnding::vanished, LifeEnding::silent));
  EXPECT_EQ(run.lives[0].time.kept, 60s);
  EXPECT_EQ(run.lives[0].time.lost, 30s);
  EXPECT_EQ(run.lives[0].last_step - run.lives[0].kept_step, 30);
  EXPECT_EQ(run.lives[1].time.kept, 100s);
  EXPECT_EQ(run.lives[1].time.lost, 0s);
  EXPECT_EQ(run.lives[1].time.paused, 80s);
  EXPECT_EQ(run.lives[1].unused_grace, 80s);
  EXPECT_EQ(run.lives[1].lead, 120s);
  EXPECT_EQ(run.lives[2].time.lost, 40s) << "at risk: nothing of it is durable";
  EXPECT_EQ(run.risk_steps, 40);
  EXPECT_EQ(run.interruptions, 2);
  EXPECT_EQ(run.missed, 1) << "the first vanished without a notice";
  EXPECT_EQ(run.time.kept, 160s);
  for (const LifeAccount& life : run.lives) EXPECT_EQ(sum(life.time), life.time.up) << life.attempt;
}

TEST(Goodput, AnAttemptThatWasSteppedPastKeptNothing) {
  LedgerText first(1, 0, 0, 1000, 0, "a");
  first.commit(100, 100, 100);
  LedgerText second(2, 100, 1, 2000, 0, "b");
  second.commit(50, 150, 50);  // its checkpoint is damaged later
  LedgerText third(3, 90, 1, 3000, 0, "c");
  third.commit(10, 100, 10).end(10, "complete", 0, 100);
  const RunAccount run = account_for(lives_of({first.text(), second.text(), third.text()}));
  EXPECT_EQ(run.lives[0].kept_step, 90);
  EXPECT_EQ(run.lives[1].kept_step, 100);
  EXPECT_EQ(run.lives[1].time.kept, 0s);
  EXPECT_EQ(run.lives[1].time.lost, 50s);
  EXPECT_EQ(run.time.kept, 100s);
}

TEST(Goodput, AnAttemptThatWasSteppedPastKeptNotEvenWhatOthersPassed) {
  LedgerText first(1, 0, 0, 1000, 0, "a");
  first.commit(100, 100, 100);
  LedgerText second(2, 50, 1, 2000, 0, "b");  // began at an older checkpoint
  second.commit(60, 110, 60);
  LedgerText third(3, 90, 1, 3000, 0, "c");
  const RunAccount run = account_for(lives_of({first.text(), second.text(), third.text()}));
  EXPECT_EQ(run.lives[1].kept_step, 50);
}

// Back to step 50, and then to 90 after all.
TEST(Goodput, StepsThatAnAttemptInBetweenHadSteppedBackOverAreKept) {
  LedgerText first(1, 0, 0, 1000, 0, "a");
  first.commit(100, 100, 100);
  LedgerText second(2, 50, 1, 2000, 0, "b");
  second.commit(20, 70, 20);
  LedgerText third(3, 90, 1, 3000, 0, "c");
  third.commit(10, 100, 10);
  const RunAccount run = account_for(lives_of({first.text(), second.text(), third.text()}));
  EXPECT_EQ(run.lives[0].kept_step, 90);
  EXPECT_EQ(run.lives[1].kept_step, 50);
  EXPECT_EQ(run.time.kept, 100s);
  EXPECT_EQ(run.time.lost, 30s);
}

TEST(Goodput, APauseUntilTheEndEndsWhereTheEndBegins) {
  LedgerText text(1, 0, 0, 1000, 0, "a");
  text.notice(100, "deadline", 120).commit(110, 110, 110).line("pause", 110, R"("step":110)");
  text.end(200, "interrupted", 75, 110, 40);
  LedgerText next(2, 110, 1, 2000, 0, "b");
  const RunAccount run = account_for(lives_of({text.text(), next.text()}));
  const LifeAccount& life = run.lives[0];
  EXPECT_EQ(life.time.paused, 50s);
  EXPECT_EQ(life.time.ending, 40s);
  EXPECT_EQ(sum(life.time), life.time.up);
  EXPECT_EQ(life.unused_grace, 110s) << "50 s of the pause, 40 s of the end, and 20 s after it";
}

// A machine that boots with a fast clock, corrected a minute later.
TEST(Goodput, AClockThatIsSetBackMakesNoOverlap) {
  LedgerText text(1, 0, 0, 4600, 0, "a");
  text.raw(R"({"event":"progress","t":1060000,"up_ms":60000,"step":60,"waited_ms":0})"
           "\n");
  LedgerText next(2, 50, 1, 1100, 0, "b");
  const RunAccount run = account_for(lives_of({text.text(), next.text()}));
  EXPECT_EQ(run.lives[0].ending, LifeEnding::vanished);
  EXPECT_EQ(run.missed, 1);
}

TEST(Goodput, WhoLeftEarlyDidNotUseItsGrace) {
  LedgerText text(1, 0, 0, 1000, 0, "a");
  text.notice(50, "deadline", 120).commit(55, 50, 52).end(60, "interrupted", 75, 50, 8);
  LedgerText next(2, 50, 1, 2000, 0, "b");
  const RunAccount run = account_for(lives_of({text.text(), next.text()}));
  EXPECT_EQ(run.lives[0].unused_grace, 118s) << "8 s of leaving, and 110 s after it";
  EXPECT_EQ(run.interruptions, 1);
  EXPECT_EQ(run.missed, 0);
}

TEST(Goodput, AWithdrawnNoticeIsNone) {
  LedgerText text(1, 0, 0, 1000, 0, "a");
  text.notice(50, "deadline", 120).notice(60, "withdrawn", 0).progress(300, 300);
  LedgerText next(2, 0, 0, 2000, 0, "b");
  const RunAccount run = account_for(lives_of({text.text(), next.text()}));
  EXPECT_FALSE(run.lives[0].noticed);
  EXPECT_EQ(run.lives[0].unused_grace, 0s);
  EXPECT_EQ(run.missed, 1);
}

TEST(Goodput, ACrashIsNoInterruption) {
  LedgerText text(1, 0, 0, 1000, 0, "a");
  text.progress(50, 50);
  LedgerText same(2, 0, 0, 1100, 0, "a");
  same.progress(500, 500);
  LedgerText zombie(3, 0, 0, 1200, 0, "b");  // began while the second lived
  const RunAccount run = account_for(lives_of({text.text(), same.text(), zombie.text()}));
  EXPECT_THAT(endings(run), ElementsAre(LifeEnding::crashed, LifeEnding::superseded, LifeEnding::silent));
  EXPECT_EQ(run.interruptions, 0);
}

TEST(Goodput, WaitsForSavesAreTheirOwn) {
  LedgerText text(1, 0, 0, 1000, 10, "a");
  text.progress(110, 90, 10).end(110, "complete", 0, 90);
  const RunAccount run = account_for(lives_of({text.text()}));
  EXPECT_EQ(run.time.up, 110s);
  EXPECT_EQ(run.time.lost, 90s) << "nothing was committed";
  EXPECT_EQ(run.time.waited, 10s);
}

TEST(Goodput, HostileLedgersMakeNoNegativeTimes) {
  std::mt19937 random(11);
  for (int round = 0; round < 60; ++round) {
    std::vector<std::string> ledgers;
    for (int attempt = 1; attempt <= 3; ++attempt) {
      const auto any = [&](int below) { return static_cast<int>(random() % static_cast<unsigned>(below)); };
      LedgerText text(attempt, any(100), any(4), any(1000), any(50),
                      std::string(1, static_cast<char>('a' + any(2))));
      for (int i = 0; i < 10; ++i) {
        text.progress(any(500), any(500), any(100)).commit(any(500), any(500), any(500));
        text.notice(any(500), any(2) == 0 ? "deadline" : "withdrawn", any(200));
        text.line(any(2) == 0 ? "pause" : "go on", any(500), R"("step":1)");
      }
      if (any(2) == 0) text.end(any(500), "interrupted", any(100), any(500), any(100));
      ledgers.push_back(text.text());
    }
    const RunAccount run = account_for(lives_of(ledgers));
    for (const LifeAccount& life : run.lives) {
      for (const Duration part : {life.time.up, life.time.startup, life.time.kept, life.time.lost,
                                  life.time.waited, life.time.paused, life.time.unknown, life.unused_grace}) {
        ASSERT_GE(part, 0s);
      }
      ASSERT_LE(life.time.kept + life.time.lost, life.time.up);
      ASSERT_LE(life.kept_step, life.last_step);
    }
    ASSERT_GE(run.goodput, 0);
    ASSERT_LE(run.goodput, 1);
  }
}

}}  // namespace holdfast::test
