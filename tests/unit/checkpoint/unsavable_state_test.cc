// A state that no file can hold ends the run at the first boundary that shows it, on every rank; the older
// checkpoint stands.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "together.h"

namespace holdfast::test { namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::StartsWith;

// More than the attributes of a file can be.
void make_unsavable(MemorySource& source) { source.extra["log"] = std::string(17U << 20, 'x'); }

RunState run_state_of(const Volume& volume) {
  auto disk = volume.disk.copy();
  return read_run_state(*disk.open_directory(kRun, false)).value();
}

TEST(UnsavableState, EndsTheRunAtItsSave) {
  Volume volume;
  CapturedLog log;
  {
    Attempt run(volume.options({SaveEvery::steps(2)}));
    run.train_to(2);
    make_unsavable(run.source);
    EXPECT_FALSE(run.step().failure) << "nothing is due, and nothing is looked at";
    try {
      run.step();
      ADD_FAILURE() << "the run goes on";
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("cannot be stored"), HasSubstr("train_unsaved")));
    }
    EXPECT_EQ(run.checkpointer.finish(), 64);
    EXPECT_EQ(run.checkpointer.last_durable().step, 2);
  }
  EXPECT_EQ(run_state_of(volume).phase, RunPhase::failed);
  EXPECT_EQ(run_state_of(volume).exit_code, 64);
  EXPECT_THAT(run_state_of(volume).reason, HasSubstr("cannot be stored"));
  EXPECT_EQ(Attempt(volume.options()).resumed.step, 2);
}

TEST(UnsavableState, EndsTheRunAtTheFirstBoundaryAlthoughNoSaveIsDue) {
  Volume volume;
  CapturedLog log;
  Attempt run(volume.options());
  make_unsavable(run.source);
  EXPECT_THROW(run.step(), UsageError);
  EXPECT_EQ(run.checkpointer.finish(), 64);
}

// A save that has begun before is still committed.
TEST(UnsavableState, EndsTheRunInsteadOfAStop) {
  Volume volume;
  CapturedLog log;
  Attempt run(volume.options());
  run.train_to(3);
  run.checkpointer.save();
  make_unsavable(run.source);
  run.checkpointer.request_stop("SIGTERM");
  EXPECT_THROW(run.step(), UsageError);
  EXPECT_EQ(run.checkpointer.finish(), 64);
  EXPECT_EQ(run.checkpointer.last_durable().step, 3);
}

TEST(UnsavableState, IsAFailedSaveOfAProgramThatWantsNone) {
  Volume volume;
  CapturedLog log;
  CheckpointerOptions options = volume.options({SaveEvery::steps(1)});
  options.writing.train_unsaved = true;
  Attempt run(options);
  make_unsavable(run.source);
  EXPECT_THAT(run.step().failure.value_or(""), HasSubstr("cannot be stored"));
  run.source.extra.clear();
  run.train_to(3);
  EXPECT_EQ(run.checkpointer.finish(), 0);
}

// Whoever writes: rank 0 alone, or both.
TEST_F(Together, AStateThatNoFileCanHoldEndsEveryRankAtTheSameStep) {
  CapturedLog log;
  for (const int sees : {1, 2}) {
    for (const std::int64_t since : {0, 4}) {
      start_over();
      seers = sees;
      options.every = {SaveEvery::steps(3)};
      live(2, [since](Member& one) {
        one.train_to(since);
        make_unsavable(one.source);
        one.train_to(20);
        one.finish();
      });
      EXPECT_THAT(errors(), Each(AllOf(StartsWith("64 "), HasSubstr("cannot be stored")))) << sees << since;
      EXPECT_EQ(member(0).source.step(), member(1).source.step());
      EXPECT_EQ(member(0).source.step(), since == 0 ? 2 : 7) << sees << ": all agree on it";
    }
  }
}

}}  // namespace holdfast::test
