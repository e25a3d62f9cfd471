// Several ranks evaluate when an end is announced to one of them: the boundary at which all stand is
// committed while they do, once, and never anything that is not whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <utility>

#include "slow_disk.h"
#include "together.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::int64_t kEvaluated = 4;

class EvaluationTogether : public Together {
 protected:
  // Copies all that the evaluation of this rank changes when it ends; `inside` runs after it has changed it.
  static void evaluate(
      Member& one, const std::function<void()>& inside = [] {}) {
    const Checkpointer::EvaluationScope scope(*one.checkpointer);
    one.source.evaluate();
    inside();
  }
  static bool is_durable(Member& one) {
    return soon([&] { return one.checkpointer->last_durable().step == kEvaluated; });
  }
  static void to_the_end(Member& one) {
    one.train_to(20);
    one.finish();
  }
  // Rank 0 sees the commit; the others evaluate until then.
  void stay_until_committed(Member& one) {
    if (one.rank == 0) {
      EXPECT_TRUE(is_durable(one));
      committed = true;
    }
    EXPECT_TRUE(soon([&] { return committed.load(); }));
  }
  std::vector<std::string> undisturbed() {
    start_over();
    live(3, [](Member& one) {
      one.train_to(kEvaluated);
      evaluate(one);
      to_the_end(one);
    });
    const auto end = states();
    start_over();
    committed = false;
    return end;
  }
  std::atomic<bool> committed{false};
};

TEST_F(EvaluationTogether, AnEndThatAnyRankHearsOfCommitsTheBoundaryAtOnce) {
  for (const int hears : {0, 2}) {
    for (const int sees : {1, 3}) {
      SCOPED_TRACE("rank " + std::to_string(hears) + " hears, " + std::to_string(sees) + " see the volume");
      seers = sees;
      const auto end = undisturbed();
      live(3, [&](Member& one) {
        one.train_to(kEvaluated);
        evaluate(one, [&] {
          if (one.rank == hears) one.announcer.deadline(one.clock.now() + 24h);
          stay_until_committed(one);
          throw Error("the machine went");
        });
      });
      EXPECT_THAT(errors(), Each(HasSubstr("the machine went")));
      live(3, [&](Member& one) {
        EXPECT_EQ(one.resumed.step, kEvaluated);
        EXPECT_TRUE(one.resumed.evaluation_due);
        EXPECT_TRUE(one.resumed.bit_exact);
        evaluate(one);
        to_the_end(one);
      });
      EXPECT_THAT(errors(), Each(std::string()));
      EXPECT_EQ(states(), end);
    }
  }
}

// The commit of the evaluation is the one that the notice asks for.
TEST_F(EvaluationTogether, ThatIsTheOnlyCommitForThisEnd) {
  for (const int hears : {0, 2}) {
    SCOPED_TRACE("rank " + std::to_string(hears));
    const auto end = undisturbed();
    live(3, [&](Member& one) {
      one.train_to(kEvaluated);
      evaluate(one, [&] {
        if (one.rank == hears) one.announcer.deadline(one.clock.now() + 24h);
        stay_until_committed(one);
      });
      to_the_end(one);
    });
    expect_all_ended(0);
    for (const auto& one : members) EXPECT_THAT(one->saved, IsEmpty());
    EXPECT_THAT(volume->checkpoints(),
                ElementsAre(HasSubstr("step-000000000004"), HasSubstr("step-000000000020")));
    EXPECT_EQ(states(), end);
  }
}

// It is under way when the ranks leave the evaluation, and their loop.
TEST_F(EvaluationTogether, AStepIsCommittedOnce) {
  for (const int hears : {0, 2}) {
    start_over();
    SlowDisk disk(*volume);
    std::atomic<bool> begun{false};
    live(3, [&](Member& one) {
      one.train_to(kEvaluated);
      evaluate(one, [&] {
        if (one.rank == hears) one.announcer.stop(one.clock.now() + 24h);
        if (one.rank == 0) disk.await(1);
        if (one.rank == 0) begun = true;
        EXPECT_TRUE(soon([&] { return begun.load(); }));
      });
      if (one.rank == 0) disk.finish(100);
      one.finish();
    });
    expect_all_ended(75);
    EXPECT_EQ(disk.begun(), 1) << "the same step in two files";
    EXPECT_THAT(volume->checkpoints(), ElementsAre(HasSubstr("step-000000000004")));
    for (const auto& one : members) EXPECT_EQ(one->checkpointer->last_durable().step, kEvaluated);
  }
}

// Ranks come when they come: nothing is committed without all that belongs to it.
TEST_F(EvaluationTogether, ARankThatComesLateIsWaitedForWithoutHoldingAnybody) {
  const auto end = undisturbed();
  std::atomic<bool> noticed{false};
  live(3, [&](Member& one) {
    one.train_to(kEvaluated);
    if (one.rank == 1) {
      EXPECT_TRUE(soon([&] { return noticed.load(); }));
      std::this_thread::sleep_for(300ms);
      EXPECT_THAT(volume->checkpoints(), IsEmpty());
    }
    evaluate(one, [&] {
      if (one.rank == 2) one.announcer.deadline(one.clock.now() + 24h);
      if (one.rank == 2) noticed = true;
      stay_until_committed(one);
    });
    to_the_end(one);
  });
  EXPECT_THAT(errors(), Each(std::string()));
  EXPECT_EQ(states(), end);
}

TEST_F(EvaluationTogether, WhatNotAllEvaluateOrOneRankDoesNotHoldIsSavedAfterwards) {
  for (const bool whole : {true, false}) {
    SCOPED_TRACE(whole ? "rank 0 evaluates alone" : "the state is spread over the ranks");
    start_over();
    spread = !whole;
    live(2, [&](Member& one) {
      one.train_to(kEvaluated);
      if (one.rank == 0 || !whole) {
        evaluate(one, [&] {
          one.announcer.deadline(one.clock.now() + 24h);
          std::this_thread::sleep_for(300ms);
          EXPECT_THAT(volume->checkpoints(), IsEmpty());
        });
      }
      to_the_end(one);
    });
    expect_all_ended(0);
    for (const auto& one : members) EXPECT_THAT(one->saved, ElementsAre(6));
  }
}

// A save of the very step is under way: its image is the boundary's, and no other is made.
TEST_F(EvaluationTogether, ASaveOfThatStepIsEnough) {
  patient = false;
  SlowDisk disk(*volume);
  live(2, [&](Member& one) {
    one.train_to(kEvaluated - 2);
    one.checkpointer->request_save();
    one.train_to(kEvaluated);
    const std::int64_t copies = one.source.copies;
    evaluate(one, [&] {
      if (one.rank == 0) one.announcer.deadline(one.clock.now() + 24h);
      if (one.rank == 0) disk.finish(100);
      stay_until_committed(one);
    });
    EXPECT_EQ(one.source.copies, copies);
    to_the_end(one);
  });
  expect_all_ended(0);
}

}}  // namespace holdfast::test
