// A read-ahead is a hint: what it saw is used where it still holds, and nothing depends on it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "holdfast/format/reader.h"
#include "holdfast/staging/image_stager.h"
#include "rig.h"

namespace holdfast::test { namespace {

constexpr MemorySource::Options kLarge{.elements = 100'000};

class ReadAhead : public testing::Test {
 protected:
  ReadAhead() {
    Attempt first(volume.options(), kLarge);
    first.train_to(5);
    EXPECT_EQ(first.checkpointer.finish(), 0);
    const auto file = volume.disk.open_file(volume.path("step-000000000005-a0001.h5"), OpenMode::read);
    user_block = std::get<CheckpointIndex>(read_index(*file)).user_block;
    volume.faults.clear_log();
  }
  // Of tensors: headers and indexes are looked at again and again.
  std::uint64_t bytes_read() const {
    std::uint64_t sum = 0;
    for (const Operation& operation : volume.faults.log()) {
      if (operation.kind == Op::read && operation.offset >= user_block) sum += operation.length;
    }
    return sum;
  }
  static std::string state(Checkpointer& checkpointer) { return to_hex(checkpointer.state_digest()); }

  Volume volume;
  std::uint64_t user_block = 0;
  CapturedLog log;
};

TEST_F(ReadAhead, TheStateIsReadOnceAndIsTheSame) {
  MemorySource source(kLarge);
  Checkpointer checkpointer(source, volume.options());
  checkpointer.read_ahead();
  checkpointer.read_ahead();  // another one is for nothing
  const Resumed resumed = checkpointer.resume();
  EXPECT_EQ(resumed.step, 5);
  EXPECT_EQ(state(checkpointer), state_after(5, kLarge));
  const std::uint64_t once = volume.disk.get(volume.path(resumed.checkpoint)).size();
  EXPECT_EQ(bytes_read(), (once + 4095) / 4096 * 4096 - user_block);
}

TEST_F(ReadAhead, WithoutAResumeNothingHasHappened) {
  {
    MemorySource source(kLarge);
    Checkpointer checkpointer(source, volume.options());
    checkpointer.read_ahead();
  }
  EXPECT_GT(bytes_read(), 100'000u);
  for (const Operation& operation : volume.faults.log()) EXPECT_FALSE(operation.mutating) << operation.text();
}

TEST_F(ReadAhead, WhatCameSinceIsTaken) {
  MemorySource source(kLarge);
  Checkpointer checkpointer(source, volume.options());
  checkpointer.read_ahead();
  {
    Attempt rival(volume.options(), kLarge);
    rival.train_to(7);
    EXPECT_EQ(rival.checkpointer.finish(), 0);
  }
  EXPECT_EQ(checkpointer.resume().step, 7);
  EXPECT_EQ(state(checkpointer), state_after(7, kLarge));
}

TEST_F(ReadAhead, DamageThatCameSinceIsFound) {
  MemorySource source(kLarge);
  Checkpointer checkpointer(source, volume.options());
  checkpointer.read_ahead();
  CheckpointerOptions options = volume.options();
  {
    Attempt rival(options, kLarge);
    rival.train_to(7);
    EXPECT_EQ(rival.checkpointer.finish(), 0);
  }
  const std::string newest = volume.path("step-000000000007-a0002.h5");
  volume.disk.flip_bit(newest, volume.disk.get(newest).size() - 1000);
  const Resumed resumed = checkpointer.resume();
  EXPECT_EQ(resumed.step, 5);
  ASSERT_EQ(resumed.skipped.size(), 1u);
  EXPECT_EQ(state(checkpointer), state_after(5, kLarge));
}

TEST_F(ReadAhead, WhatFailsInItIsTriedAgain) {
  volume.faults.fail(Op::read, 1, EIO);
  MemorySource source(kLarge);
  Checkpointer checkpointer(source, volume.options());
  checkpointer.read_ahead();
  EXPECT_EQ(checkpointer.resume().step, 5);
  bool failed = false;
  for (const Operation& operation : volume.faults.log()) failed = failed || operation.failed;
  EXPECT_TRUE(failed);
}

TEST_F(ReadAhead, AnEmptyMountPointIsLeftAlone) {
  volume.disk.unmount("/vol");
  MemorySource source(kLarge);
  Checkpointer checkpointer(source, volume.options());
  checkpointer.read_ahead();
}

// The next file's plan is made beside the reading, from the index of the one that is read: it has its room.
TEST(PlanBeside, AResumedRunTakesIt) {
  const auto capacity = [](Volume& volume, const char* name) {
    const auto file = volume.disk.open_file(volume.path(name), OpenMode::read);
    return std::get<CheckpointIndex>(read_index(*file)).attribute_capacity;
  };
  Volume volume;
  {
    Attempt first(volume.options({SaveEvery::steps(1)}));
    first.source.extra["vocabulary"] = std::string(300'000, 'x');
    first.train_to(1);
    first.source.extra.clear();
    first.train_to(2);
    EXPECT_EQ(first.checkpointer.finish(), 0);
  }
  EXPECT_EQ(capacity(volume, "step-000000000002-a0001.h5"), 2 * kDefaultAttributeCapacity);
  Attempt second(volume.options());
  second.train_to(3);
  EXPECT_EQ(second.checkpointer.finish(), 0);
  EXPECT_EQ(capacity(volume, "step-000000000003-a0002.h5"), 2 * kDefaultAttributeCapacity);
}

TEST(PlanBeside, IsTakenOnlyWhereItFits) {
  constexpr std::uint64_t kLargeCapacity = 4 * kDefaultAttributeCapacity;
  const std::uint64_t usual = usual_attribute_capacity(MemorySource().describe());
  MemorySource source;
  const auto planned = [&](std::vector<TensorSpec> guess, std::uint64_t capacity) {
    internal::ImageStager stager(source, 1);
    stager.plan_beside(std::move(guess), capacity);
    stager.plan_ahead();
    const auto plan = stager.stage({}).plan;
    EXPECT_EQ(plan->layout->tensors(), source.describe());
    return plan->attribute_capacity;
  };
  std::vector<TensorSpec> others = source.describe();
  others.pop_back();
  EXPECT_EQ(planned(source.describe(), kLargeCapacity), kLargeCapacity);
  EXPECT_EQ(planned(others, kLargeCapacity), usual);
  EXPECT_EQ(planned(source.describe(), kMinAttributeCapacity), usual) << "too small";
  EXPECT_EQ(planned({{"no/../name", DType::float32, {1}}, {"", DType::float32, {1}}}, kLargeCapacity), usual)
      << "what cannot be planned is no guess";
}

}}  // namespace holdfast::test
