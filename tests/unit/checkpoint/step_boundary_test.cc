// Whether memory is the newest step boundary, and what is recorded of that.
#include "holdfast/checkpoint/internal/step_boundary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "engine_rig.h"

namespace holdfast::test { namespace {

using internal::StepBoundary;
using testing::HasSubstr;
using testing::Not;

class StepBoundaryTest : public EngineTest {
 protected:
  StepBoundaryTest() { make(); }
  void arrive(std::optional<double> loss, bool evaluation_due = false) {
    boundary().arrive({.loss = loss, .evaluation_due = evaluation_due});
  }
  StepBoundary& boundary() { return engine->boundary; }
  RunRecord record() {
    RunRecord record;
    boundary().note_in(record);
    return record;
  }
};

TEST_F(StepBoundaryTest, AnAnnouncedUpdateIsNoBoundaryUntilItArrives) {
  EXPECT_FALSE(boundary().updating());
  boundary().update_begins();
  EXPECT_TRUE(boundary().updating());
  arrive(0.5);
  EXPECT_FALSE(boundary().updating());
  EXPECT_TRUE(boundary().update_announced()) << "the save of this boundary wants to know";
  boundary().leave();
  EXPECT_FALSE(boundary().update_announced());
}

TEST_F(StepBoundaryTest, AnUpdateThatNobodyCountedIsNoBoundary) {
  source.on_advance = [] { throw std::runtime_error("planted"); };
  EXPECT_THROW(arrive(0.5), std::runtime_error);
  EXPECT_TRUE(boundary().updating());
  source.on_advance = {};
  arrive(0.5);
  EXPECT_FALSE(boundary().updating());
}

TEST_F(StepBoundaryTest, ADisturbedBoundaryStaysSoUntilTheNextStep) {
  arrive(0.5);
  boundary().disturb();
  EXPECT_TRUE(boundary().disturbed());
  boundary().leave();
  EXPECT_TRUE(boundary().disturbed());
  arrive(0.5);
  EXPECT_FALSE(boundary().disturbed());
}

TEST_F(StepBoundaryTest, AnUpdateThatHasBegunIsNotOnlyDisturbed) {
  boundary().update_begins();
  boundary().disturb();
  EXPECT_TRUE(boundary().updating());
}

TEST_F(StepBoundaryTest, RecordsWhatTheStepReported) {
  arrive(0.5, true);
  EXPECT_EQ(record().loss, 0.5);
  EXPECT_TRUE(record().finite);
  EXPECT_TRUE(record().evaluation_due);
  EXPECT_EQ(record().time, "2025-06-15T15:06:40Z");
  boundary().owe_evaluation(false);
  EXPECT_FALSE(record().evaluation_due);

  arrive({});
  EXPECT_EQ(record().loss, std::nullopt) << "an older step's loss is not this one's";
  EXPECT_TRUE(record().finite) << "unknown is not NaN";
}

TEST_F(StepBoundaryTest, GoesOnWithWhatTheCheckpointRecorded) {
  run->started.loss = 0.25;
  run->started.resumed.evaluation_due = true;
  boundary().begin();
  EXPECT_EQ(record().loss, 0.25);
  EXPECT_TRUE(record().evaluation_due);
}

TEST_F(StepBoundaryTest, OneWarningEachTimeTheLossStopsBeingFinite) {
  const double nan = std::nan("");
  const double infinite = std::numeric_limits<double>::infinity();
  for (const double loss : {0.5, nan, nan, 0.5, -infinite, infinite, nan}) arrive(loss);
  EXPECT_FALSE(record().finite);
  const std::string text = log.text();
  EXPECT_THAT(text, HasSubstr("the loss of step 2 is nan"));
  EXPECT_THAT(text, Not(HasSubstr("step 3 ")));
  EXPECT_THAT(text, HasSubstr("the loss of step 5 is -inf"));
  EXPECT_THAT(text, Not(HasSubstr("step 6 ")));
}

TEST_F(StepBoundaryTest, OneRankWarnsForAll) {
  partners.speaks_for_all = false;
  arrive(std::nan(""));
  EXPECT_FALSE(record().finite);
  EXPECT_THAT(log.text(), Not(HasSubstr("the loss of step")));
}

}}  // namespace holdfast::test
