// What counts as a step, and what as a wait for a save.
#include "holdfast/checkpoint/internal/training_time.h"

#include <gtest/gtest.h>

#include "support/fake_clock.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using internal::TrainingTime;

class TrainingTimeTest : public testing::Test {
 protected:
  TrainingTimeTest() {
    book.open(0, clock.now());
    time.begin();
    step(9s);  // the first one is no measure
  }
  void step(Duration took) {
    clock.advance(took);
    time.step(clock.now(), 0);
  }
  Duration measured() const { return costs.costs().step; }

  FakeClock clock;
  CostModel costs;
  internal::SaveBook book{clock, {}};
  TrainingTime time{clock, costs, book};
};

TEST_F(TrainingTimeTest, AStepIsMeasuredWithoutItsWaits) {
  {
    const TrainingTime::Waiting waiting(time);
    clock.advance(5s);
  }
  step(2s);
  EXPECT_EQ(measured(), 2s);
  EXPECT_EQ(book.figures().blocked, 5s);
}

TEST_F(TrainingTimeTest, NestedWaitsCountOnce) {
  {
    const TrainingTime::Waiting save(time);
    clock.advance(1s);
    const TrainingTime::Waiting close(time);
    clock.advance(3s);
    EXPECT_EQ(save.so_far(), 4s);
  }
  step(2s);
  EXPECT_EQ(measured(), 2s);
  EXPECT_EQ(book.figures().blocked, 4s);
}

// A save inside the pause is a wait in the figures, and no part of the step either way.
TEST_F(TrainingTimeTest, APauseIsNeitherStepNorSave) {
  {
    const TrainingTime::Pause pause(time);
    clock.advance(10s);
    {
      const TrainingTime::Waiting waiting(time);
      clock.advance(1s);
    }
    EXPECT_EQ(pause.so_far(), 11s);
  }
  step(2s);
  EXPECT_EQ(measured(), 2s);
  EXPECT_EQ(book.figures().blocked, 1s);
}

TEST_F(TrainingTimeTest, AStepWithAnEvaluationIsNoMeasure) {
  step(2s);
  time.leave_step_out();
  step(60s);
  step(2s);
  EXPECT_EQ(measured(), 2s);
  EXPECT_EQ(time.boundary(), clock.now());
}

}}  // namespace holdfast::test
