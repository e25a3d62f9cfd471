// Which numbers make a checkpoint "not finite": a NaN anywhere, an infinity in a trained parameter or an
// optimizer slot. A buffer may hold infinities (a causal mask, an observer's minimum).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "holdfast/format/file_plan.h"
#include "holdfast/format/layout.h"
#include "holdfast/format/reader.h"
#include "holdfast/staging/run_record.h"
#include "rig.h"

namespace holdfast::test { namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
const MemorySource::Options kWithMask{.mask = true};

bool newest_is_finite(Volume& volume) {
  const auto file = volume.disk.open_file(volume.path(volume.checkpoints().back()), OpenMode::read);
  return run_record_of(std::get<CheckpointIndex>(read_index(*file)).attributes).finite;
}

void save_every_step(Attempt& run, std::int64_t last, std::optional<double> loss = {}) {
  while (run.source.step() < last) {
    StepReport report = run.source.train();
    if (loss) report.loss = loss;
    run.checkpointer.after_step(report);
    ASSERT_EQ(run.checkpointer.save().wait(), SaveStatus::durable);
  }
}

TEST(FiniteState, KeepBestKeepsTheBestOfAModelWithAMask) {
  Volume volume;
  CapturedLog log;
  auto options = volume.options();
  options.keep = KeepLast{2} | KeepBest{"accuracy", 1, Better::higher};
  Attempt run(options, kWithMask);
  save_every_step(run, 4);
  run.checkpointer.metric("accuracy", 0.9);
  save_every_step(run, 12);
  EXPECT_EQ(run.checkpointer.finish(), 0);
  EXPECT_THAT(volume.checkpoints(), Contains("step-000000000004-a0001.h5"));
  EXPECT_THAT(log.text(), Not(HasSubstr("not finite")));
}

TEST(FiniteState, TheLastGoodCheckpointOfAModelWithAMaskStaysWhenTheLossTurnsNaN) {
  Volume volume;
  CapturedLog log;
  auto options = volume.options();
  options.keep = KeepLast{2};
  Attempt run(options, kWithMask);
  save_every_step(run, 5);
  save_every_step(run, 12, kNaN);
  EXPECT_EQ(run.checkpointer.finish(), 0);
  EXPECT_THAT(volume.checkpoints(), Contains("step-000000000005-a0001.h5"));
}

TEST(FiniteState, ANaNCountsAnywhereAndAnInfinityInWhatIsTrained) {
  Volume volume;
  CapturedLog log;
  Attempt run(volume.options(), kWithMask);
  save_every_step(run, 1);
  EXPECT_TRUE(newest_is_finite(volume));
  const auto save_with = [&](float& number, float value) {
    run.checkpointer.after_step(run.source.train());
    const float before = std::exchange(number, value);
    ASSERT_EQ(run.checkpointer.save().wait(), SaveStatus::durable);
    number = before;
  };
  save_with(run.source.mask(2), kInfinity);
  EXPECT_TRUE(newest_is_finite(volume));
  save_with(run.source.mask(2), std::numeric_limits<float>::quiet_NaN());
  EXPECT_FALSE(newest_is_finite(volume));
  save_with(run.source.weight(3), kInfinity);
  EXPECT_FALSE(newest_is_finite(volume));
  save_with(run.source.momentum(3), -kInfinity);
  EXPECT_FALSE(newest_is_finite(volume));
}

// The thread that copies also digests, and the writer is handed what it found.
TEST(FiniteState, ANaNThatIsCopiedBesideTheTrainingIsFound) {
  Volume volume;
  CapturedLog log;
  Attempt run(volume.options({SaveEvery::steps(1)}), kWithMask);
  const auto announced_step = [&](bool spoils) {
    run.checkpointer.before_update();
    const StepReport report = run.source.train();
    if (spoils) run.source.weight(3) = std::numeric_limits<float>::quiet_NaN();
    run.checkpointer.after_step(report);
    run.checkpointer.before_update();  // ends the copy
    ASSERT_EQ(run.checkpointer.save().wait(), SaveStatus::durable);
  };
  for (int i = 0; i < 4; ++i) announced_step(false);
  EXPECT_GT(run.source.late_copies, 2) << "more than are compared";
  EXPECT_TRUE(newest_is_finite(volume));
  announced_step(true);
  EXPECT_FALSE(newest_is_finite(volume));
}

TEST(FiniteState, AStateThatIsNotFiniteFromTheFirstSaveOnIsNamedOnce) {
  Volume volume;
  CapturedLog log;
  Attempt run(volume.options(), kWithMask);
  for (int i = 0; i < 3; ++i) {
    run.checkpointer.after_step(run.source.train());
    run.source.momentum(5) = kInfinity;
    ASSERT_EQ(run.checkpointer.save().wait(), SaveStatus::durable);
  }
  const std::string said = log.text();
  const std::string warning = "the state of step 1 is not finite: tensor optimizer/momentum/weight";
  EXPECT_THAT(said, HasSubstr(warning));
  EXPECT_THAT(said.substr(said.find(warning) + warning.size()), Not(HasSubstr("is not finite")));
}

// "run.finite" turns from true to false after the file was planned, which takes one byte more.
TEST(FiniteState, AStateThatIsFoundNotFiniteFitsIntoItsFile) {
  Volume volume;
  CapturedLog log;
  Attempt run(volume.options());
  save_every_step(run, 1);
  const auto file = volume.disk.open_file(volume.path(volume.checkpoints().back()), OpenMode::read);
  const auto index = std::get<CheckpointIndex>(read_index(*file));
  Attributes attributes = index.attributes;
  const auto fits = [&](std::size_t size) {
    attributes.set("extra.pad", std::string(size, 'x'));
    return attribute_bytes(attributes) <= index.attribute_capacity;
  };
  std::size_t most = 0;
  for (std::size_t bit = 1u << 18; bit > 0; bit /= 2) most += fits(most + bit) ? bit : 0;
  run.source.extra["pad"] = std::string(most, 'x');
  run.checkpointer.after_step(run.source.train());
  run.source.weight(3) = std::numeric_limits<float>::quiet_NaN();
  const SaveHandle save = run.checkpointer.save();
  EXPECT_EQ(save.wait(), SaveStatus::durable) << save.error();
}

// Said once, and again after the loss was finite in between.
TEST(FiniteState, ALossThatIsNotFiniteIsSaidOnce) {
  Volume volume;
  CapturedLog log;
  Attempt run(volume.options());
  const auto tell = [&](std::initializer_list<std::optional<double>> losses) {
    for (const auto& loss : losses) {
      StepReport report = run.source.train();
      report.loss = loss;
      run.checkpointer.after_step(report);
    }
  };
  tell({0.5, kNaN, {}, kNaN, std::numeric_limits<double>::infinity(), 0.25, {}, kInfinity, kNaN});
  const std::string said = log.text();
  EXPECT_THAT(said, HasSubstr("the loss of step 2 is nan"));
  EXPECT_THAT(said, HasSubstr("the loss of step 8 is inf"));
  std::size_t times = 0;
  for (std::size_t at = 0; (at = said.find("the loss of step", at)) != std::string::npos; ++at) ++times;
  EXPECT_EQ(times, 2u);
}

}}  // namespace holdfast::test
