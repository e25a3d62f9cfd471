// What finish() stores of several ranks is what after_step() left at the last step, whatever their programs
// have changed since.
#include "together.h"

namespace holdfast::test { namespace {

using testing::Each;
using testing::HasSubstr;
using testing::Not;

constexpr std::int64_t kLastStep = 5;

class HeldTogether : public Together {
 protected:
  static void train(Member& one, bool announced = true) {
    if (announced) one.checkpointer->expect_last_step(kLastStep);
    one.train_to(kLastStep);
  }
  static void work_on(Member& one) {
    one.source.weight(0) = 7;
    one.source.evaluate();  // draws this rank's own random numbers
  }
  std::vector<std::string> undisturbed() {
    start_over();
    live(3, [](Member& one) {
      train(one);
      one.finish();
    });
    expect_all_ended(0);
    const auto end = states();
    start_over();
    return end;
  }
  void expect_stored(const std::vector<std::string>& state) {
    live(3, [](Member& one) { EXPECT_EQ(one.resumed.step, kLastStep); });
    EXPECT_THAT(errors(), Each(std::string()));
    EXPECT_EQ(states(), state);
  }
  CapturedLog log;
};

TEST_F(HeldTogether, TheLastBoundaryIsStoredWhetherRanksShareTheWriteOrNot) {
  for (const int sees : {1, 3}) {
    for (const bool by_data : {false, true}) {
      SCOPED_TRACE(std::to_string(sees) + " see the volume");
      seers = sees;
      const auto end = undisturbed();
      live(3, [&](Member& one) {
        if (by_data) {
          one.train_to(kLastStep - 1);
          one.source.end = DataEnd::run;
          one.step();
        } else {
          train(one);
        }
        work_on(one);
        one.source.changes = {"model/weight"};
        one.finish();
      });
      expect_all_ended(0);
      expect_stored(end);
    }
  }
  const std::string said = log.text();
  EXPECT_THAT(said, HasSubstr("step 5 is stored as after_step() left it, without what has changed "
                              "since: model/weight."));
  EXPECT_THAT(said, Not(HasSubstr("stored as it found the state")));
}

// An evaluation after the last step, with a value that decides what is kept.
TEST_F(HeldTogether, AnEvaluationAfterItChangesNothing) {
  for (const int sees : {1, 3}) {
    seers = sees;
    const auto end = undisturbed();
    live(3, [&](Member& one) {
      train(one);
      {
        const Checkpointer::EvaluationScope scope(*one.checkpointer);
        work_on(one);
      }
      one.checkpointer->metric("accuracy", 0.5);
      one.finish();
    });
    expect_all_ended(0);
    expect_stored(end);
  }
}

// A rank that was not told, and one that was: each stores what it has, and none waits for the other.
TEST_F(HeldTogether, RanksNeedNotAllKnow) {
  for (const int sees : {1, 3}) {
    for (const int knows : {0, 1}) {
      seers = sees;
      const auto end = undisturbed();
      live(3, [&](Member& one) {
        train(one, one.rank == knows);
        one.finish();
      });
      expect_all_ended(0);
      expect_stored(end);
    }
  }
}

// Their parts of such a state come together in memory alone.
TEST_F(HeldTogether, ASpreadStateIsStoredAsItIsFound) {
  spread = true;
  live(3, [](Member& one) {
    train(one);
    one.finish();
  });
  expect_all_ended(0);
  const auto end = states();
  expect_stored(end);
}

TEST_F(HeldTogether, ASaveByAllRanksHasIt) {
  seers = 3;
  options.every = {SaveEvery::steps(kLastStep)};
  const auto end = undisturbed();  // keeps the options' policy
  live(3, [&](Member& one) {
    train(one);
    work_on(one);
    one.finish();
  });
  expect_all_ended(0);
  expect_stored(end);
}

}}  // namespace holdfast::test
