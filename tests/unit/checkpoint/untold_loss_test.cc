// A loop need not tell its loss at every step: reading it from a device costs a wait. An untold loss is
// unknown: no checkpoint counts as worse for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "rig.h"

namespace holdfast::test { namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::string file_of(std::int64_t step) {
  const std::string digits = std::to_string(step);
  return "step-" + std::string(12 - digits.size(), '0') + digits + "-a0001.h5";
}

// Trains to `last`, tells the loss at every third step, and saves every step.
void train_telling_every_third(Attempt& run, std::int64_t last) {
  while (run.source.step() < last) {
    const StepReport trained = run.source.train();
    StepReport report{.applied = trained.applied};
    const std::int64_t step = run.source.step() + 1;
    if (step % 3 == 0) report.loss = trained.loss;
    run.checkpointer.after_step(report);
    ASSERT_EQ(run.checkpointer.save().wait(), SaveStatus::durable);
  }
}

TEST(UntoldLoss, KeepBestKeepsTheBestOfAStepWithoutALoss) {
  Volume volume;
  CapturedLog log;
  auto options = volume.options();
  options.keep = KeepLast{2} | KeepBest{"accuracy", 1, Better::higher};
  Attempt run(options);
  train_telling_every_third(run, 4);
  run.checkpointer.metric("accuracy", 0.9);
  train_telling_every_third(run, 6);
  run.checkpointer.metric("accuracy", 0.5);
  train_telling_every_third(run, 12);
  EXPECT_EQ(run.checkpointer.finish(), 0);
  EXPECT_THAT(volume.checkpoints(), Contains(file_of(4)));
}

// Files of untold steps cannot be ranked, and take nobody's place.
TEST(UntoldLoss, KeepBestByLossRanksToldLossesAlone) {
  Volume volume;
  CapturedLog log;
  auto options = volume.options();
  options.keep = KeepLast{2} | KeepBest{};
  Attempt run(options);
  while (run.source.step() < 12) {
    StepReport report{.applied = run.source.train().applied};
    const std::int64_t step = run.source.step() + 1;
    if (step % 3 == 0) report.loss = static_cast<double>(step);
    run.checkpointer.after_step(report);
    ASSERT_EQ(run.checkpointer.save().wait(), SaveStatus::durable);
  }
  EXPECT_EQ(run.checkpointer.finish(), 0);
  EXPECT_THAT(volume.checkpoints(), testing::ElementsAre(file_of(3), file_of(11), file_of(12)));
}

TEST(UntoldLoss, TheNewestStateBeforeALossTurnedNaNStays) {
  Volume volume;
  CapturedLog log;
  auto options = volume.options();
  options.keep = KeepLast{2};
  Attempt run(options);
  train_telling_every_third(run, 8);
  // From here on the parameters are lost, and the loss at every third step says so.
  while (run.source.step() < 14) {
    StepReport report{.applied = run.source.train().applied};
    run.source.weight(3) = std::numeric_limits<float>::quiet_NaN();
    if ((run.source.step() + 1) % 3 == 0) report.loss = kNaN;
    run.checkpointer.after_step(report);
    ASSERT_EQ(run.checkpointer.save().wait(), SaveStatus::durable);
  }
  EXPECT_EQ(run.checkpointer.finish(), 0);
  EXPECT_THAT(volume.checkpoints(), Contains(file_of(8)));
}

// A NaN that is told is not unknown.
TEST(UntoldLoss, AToldNaNIsNotFinite) {
  Volume volume;
  CapturedLog log;
  auto options = volume.options();
  options.keep = KeepLast{2};
  Attempt run(options);
  while (run.source.step() < 8) {
    StepReport report = run.source.train();
    if (run.source.step() + 1 > 3) report.loss = kNaN;
    run.checkpointer.after_step(report);
    ASSERT_EQ(run.checkpointer.save().wait(), SaveStatus::durable);
  }
  EXPECT_EQ(run.checkpointer.finish(), 0);
  EXPECT_THAT(volume.checkpoints(), Contains(file_of(3)));
}

// The life before told every loss. Steps whose loss is untold now cannot be compared, and do not differ.
TEST(UntoldLoss, IsNotComparedAfterAResume) {
  Volume volume;
  CapturedLog log;
  {
    Attempt run(volume.options());
    run.train_to(4);
    ASSERT_EQ(run.checkpointer.save().wait(), SaveStatus::durable);
    run.train_to(30);
  }
  Attempt next(volume.options());
  ASSERT_EQ(next.resumed.step, 4);
  train_telling_every_third(next, 30);
  EXPECT_EQ(next.checkpointer.finish(), 0);
  const std::string said = log.text();
  EXPECT_THAT(said, Not(HasSubstr("differs")));
  EXPECT_THAT(said, HasSubstr("bit-identical"));
}

}}  // namespace holdfast::test
