// Where a run starts, and the proof that it went on exactly there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "holdfast/format/reader.h"
#include "holdfast/staging/run_record.h"
#include "rig.h"

namespace holdfast::test { namespace {

using testing::HasSubstr;
using testing::Not;

// Attempt 1: steps 1..10, checkpoints at 4 and 8, then gone.
void leave_a_history(Volume& volume, MemorySource::Options state = {}) {
  Attempt first(volume.options({SaveEvery::steps(4)}), state);
  first.train_to(10);
}

Attributes attributes_in(Volume& volume, const std::string& path) {
  const auto file = volume.disk.open_file(path, OpenMode::read);
  return std::get<CheckpointIndex>(read_index(*file)).attributes;
}

// One state's memory beside the live one, and its pages are faulted in once.
TEST(CheckpointerResume, WhatWasReadBecomesTheNextSavesImage) {
  Volume volume;
  CapturedLog log;
  leave_a_history(volume);
  Volume other;
  Attempt fresh(other.options({SaveEvery::steps(1)}));
  fresh.train_to(1);
  EXPECT_FALSE(fresh.source.copied_over);
  Attempt second(volume.options({SaveEvery::steps(1)}));
  ASSERT_FALSE(second.resumed.fresh);
  second.train_to(second.source.step() + 1);
  EXPECT_EQ(second.source.copies, 1);
  EXPECT_TRUE(second.source.copied_over);
  EXPECT_EQ(second.checkpointer.finish(), 0);
  Attempt third(volume.options());
  EXPECT_EQ(third.resumed.step, second.source.step());
  EXPECT_EQ(third.state(), second.state());
}

TEST(CheckpointerResume, FromAChosenStepIsABranch) {
  const std::string straight = state_after(12);
  Volume volume;
  CapturedLog log;
  leave_a_history(volume);
  CheckpointerOptions options = volume.options();
  options.start.resume_from = "4";
  {
    Attempt branch(options);
    EXPECT_EQ(branch.resumed.step, 4);
    branch.train_to(12);
    EXPECT_EQ(branch.state(), straight);
    EXPECT_EQ(branch.checkpointer.finish(), 0);
  }
  // Nothing of the other branch is gone, and its newer step is no part of this history.
  EXPECT_THAT(volume.checkpoints(), testing::Contains("step-000000000008-a0001.h5"));
  EXPECT_EQ(run_record_of(attributes_in(volume, volume.path("step-000000000012-a0002.h5"))).ancestry,
            (Ancestry{{1, 4}}));
}

TEST(CheckpointerResume, ABranchLastsFromItsFirstStop) {
  Volume volume;
  CapturedLog log;
  leave_a_history(volume);
  CheckpointerOptions options = volume.options();
  options.start.resume_from = "4";
  {
    Attempt branch(options);
    branch.checkpointer.request_stop("at once");
    EXPECT_EQ(branch.checkpointer.finish(), 75);
  }
  EXPECT_EQ(Attempt(volume.options()).resumed.checkpoint, "step-000000000004-a0002.h5");
}

TEST(CheckpointerResume, FromAFileOfTheDirectory) {
  Volume volume;
  CapturedLog log;
  leave_a_history(volume);
  for (const std::string& name :
       {std::string("step-000000000004-a0001.h5"), volume.path("step-000000000004-a0001.h5")}) {
    CheckpointerOptions options = volume.options();
    options.start.resume_from = name;
    EXPECT_EQ(Attempt(options).resumed.step, 4) << name;
  }
}

TEST(CheckpointerResume, FromAFileElsewhere) {
  const std::string straight = state_after(12);
  Volume volume;
  CapturedLog log;
  leave_a_history(volume);
  CheckpointerOptions options = volume.options();
  options.directory = "/vol/other";
  options.start.resume_from = volume.path("step-000000000008-a0001.h5");
  {
    Attempt branch(options);
    EXPECT_FALSE(branch.resumed.fresh);
    EXPECT_EQ(branch.resumed.step, 8);
    EXPECT_EQ(branch.checkpointer.last_durable().step, -1);  // nothing in this directory yet
    branch.checkpointer.request_stop("at once");
    EXPECT_EQ(branch.checkpointer.finish(), 75);
    EXPECT_EQ(branch.checkpointer.last_durable().step, 8);
  }
  // Another directory's attempt numbers mean nothing here.
  EXPECT_TRUE(run_record_of(attributes_in(volume, "/vol/other/step-000000000008-a0001.h5")).ancestry.empty());
  options.start.resume_from.clear();
  Attempt next(options);
  EXPECT_EQ(next.resumed.step, 8);
  next.train_to(12);
  EXPECT_EQ(next.state(), straight);
}

TEST(CheckpointerResume, AStartThatIsNotThereIsRefusedWithoutAClaim) {
  Volume volume;
  CapturedLog log;
  leave_a_history(volume);
  volume.faults.clear_log();
  for (const std::string from : {"5", "/vol/nowhere.h5", "step-000000000005-a0001.h5"}) {
    CheckpointerOptions options = volume.options();
    options.start.resume_from = from;
    MemorySource source;
    EXPECT_THROW(Checkpointer(source, options).resume(), RefusedError) << from;
  }
  CheckpointerOptions options = volume.options();
  options.start.resume_from = "-5";
  MemorySource source;
  EXPECT_THROW(Checkpointer(source, options).resume(), UsageError);
  EXPECT_EQ(volume.faults.mutation_count(), 0);
}

TEST(CheckpointerResume, APathOrAnOverrideThatIsNoTextDoesNotMakeSavesFail) {
  Volume volume;
  CapturedLog log;
  leave_a_history(volume);
  const std::string odd = "/elsewhere/caf\xe9.h5";
  volume.disk.put(odd, volume.disk.get(volume.path("step-000000000008-a0001.h5")));
  CheckpointerOptions options = volume.options({SaveEvery::steps(1)});
  options.start.resume_from = odd;
  options.start.overrides = {"caf\xe9"};
  {
    Attempt attempt(options);
    attempt.train_to(9);
    EXPECT_EQ(attempt.checkpointer.save().status(), SaveStatus::durable)
        << attempt.checkpointer.save().error();
    EXPECT_EQ(attempt.checkpointer.finish(), 0);
  }
  const RunRecord record = run_record_of(attributes_in(volume, volume.path("step-000000000009-a0002.h5")));
  EXPECT_EQ(record.grown_from, "/elsewhere/caf\\xe9.h5");
  EXPECT_EQ(record.overrides, std::vector<std::string>{"caf\\xe9"});
}

TEST(CheckpointerResume, AHostNameThatIsNoTextIsRecordedReadably) {
  RunRecord record;
  record.attempt = 1;
  record.host = "gpu\xff";
  Attributes attributes;
  put_run_record(attributes, record);
  EXPECT_EQ(run_record_of(attributes).host, "gpu\\xff");
}

TEST(CheckpointerResume, ARecordThatNoFileCanHoldIsRefusedBeforeTheClaim) {
  Volume volume;
  CapturedLog log;
  leave_a_history(volume);
  CheckpointerOptions options = volume.options();
  options.start.overrides = {std::string(17 << 20, 'x')};
  volume.faults.clear_log();
  MemorySource source;
  EXPECT_THROW(Checkpointer(source, options).resume(), UsageError);
  EXPECT_EQ(volume.faults.mutation_count(), 0);
}

TEST(CheckpointerResume, InitFromTakesTheWeightsAlone) {
  Volume volume;
  CapturedLog log;
  leave_a_history(volume);
  CheckpointerOptions options = volume.options();
  options.directory = "/vol/tuned";
  options.start.init_from = volume.path("step-000000000008-a0001.h5");
  {
    Attempt tuned(options);
    EXPECT_TRUE(tuned.resumed.fresh);
    EXPECT_EQ(tuned.source.step(), 0);
    EXPECT_EQ(tuned.source.weight_loads, 1);
    EXPECT_EQ(tuned.source.loads, 0);
    EXPECT_NE(tuned.source.weight(0), MemorySource().weight(0));
    tuned.step();
    EXPECT_EQ(tuned.checkpointer.finish(), 0);
  }
  Attempt again(options);  // the same command line resumes
  EXPECT_EQ(again.resumed.step, 1);
  EXPECT_EQ(again.source.weight_loads, 0);

  options.directory = "/vol/third";
  options.start.init_from = "/vol/nowhere.h5";
  MemorySource source;
  EXPECT_THROW(Checkpointer(source, options).resume(), RefusedError);
  options.start.init_from = volume.path("step-000000000008-a0001.h5");
  MemorySource smaller({.elements = 7});
  EXPECT_THROW(Checkpointer(smaller, options).resume(), RefusedError);
  EXPECT_FALSE(volume.disk.exists("/vol/third"));
}

TEST(CheckpointerResume, TheReceiptSaysThatTheResumeWasExact) {
  Volume volume;
  CapturedLog log;
  leave_a_history(volume);  // steps 9 and 10 came after the checkpoint
  Attempt second(volume.options());
  EXPECT_EQ(second.resumed.step, 8);
  EXPECT_TRUE(second.resumed.bit_exact);
  second.train_to(12);
  EXPECT_THAT(log.text(), HasSubstr("resume verified: steps 9..10 bit-identical\n"));
}

TEST(CheckpointerResume, TheReceiptNamesWhatDiffers) {
  Volume volume;
  CapturedLog log;
  leave_a_history(volume);
  Attempt second(volume.options());
  second.source.weight(5) += 1e-6F;  // state that was not restored
  second.train_to(12);
  const std::string text = log.text();
  EXPECT_THAT(text, HasSubstr("warning: resume differs: the loss of step 9 was "));
  EXPECT_THAT(text, Not(HasSubstr("resume verified")));
}

TEST(CheckpointerResume, TheReceiptReadsOlderAttemptsToo) {
  Volume volume;
  CapturedLog log;
  leave_a_history(volume);  // attempt 1 reached step 10
  {
    Attempt second(volume.options());
    second.step();  // 9
    second.checkpointer.request_stop("x");
    EXPECT_EQ(second.checkpointer.finish(), 75);  // nothing beyond its checkpoint
  }
  Attempt third(volume.options());
  EXPECT_EQ(third.resumed.step, 9);
  third.step();
  EXPECT_THAT(log.text(), HasSubstr("resume verified: steps 10..10 bit-identical\n"));
}

TEST(CheckpointerResume, ChangedOptionsAreNotComparedWithWhatTheyChange) {
  Volume volume;
  CapturedLog log;
  leave_a_history(volume);
  {
    CheckpointerOptions options = volume.options();
    options.start.overrides = {"learning_rate"};
    Attempt second(options, {.learning_rate = 0.2});
    second.step();
    EXPECT_EQ(second.checkpointer.finish(), 0);  // at step 9
  }
  Attempt third(volume.options(), {.learning_rate = 0.2});
  EXPECT_EQ(third.resumed.step, 9);
  third.train_to(12);
  third.checkpointer.finish();
  EXPECT_THAT(log.text(), Not(HasSubstr("resume ")));
  EXPECT_EQ(run_record_of(attributes_in(volume, volume.path("step-000000000012-a0003.h5"))).overrides,
            std::vector<std::string>{"learning_rate"});
}

TEST(CheckpointerResume, AnAcceptedOverrideWithdrawsThePromiseAloud) {
  Volume volume;
  CheckpointerOptions options = volume.options();
  options.start.overrides = {"learning_rate"};
  {
    CapturedLog log;
    leave_a_history(volume);
    Attempt second(options, {.learning_rate = 0.2});
    EXPECT_FALSE(second.resumed.bit_exact);
    second.train_to(12);
    second.checkpointer.finish();
    const std::string text = log.text();
    EXPECT_THAT(text, HasSubstr("warning: not bit-exact from here on"));
    EXPECT_THAT(text, HasSubstr("options.learning_rate: 0.1 → 0.2"));
    EXPECT_THAT(text, Not(HasSubstr("resume verified")));
  }
  // The checkpoints of the second attempt record the new value: there is nothing left to accept.
  CapturedLog log;
  Attempt third(options, {.learning_rate = 0.2});
  EXPECT_EQ(third.resumed.step, 12);
  EXPECT_TRUE(third.resumed.bit_exact);
  EXPECT_THAT(log.text(), Not(HasSubstr("not bit-exact")));
}

TEST(CheckpointerResume, AnotherEnvironmentWithdrawsThePromiseAloud) {
  Volume volume;
  CapturedLog log;
  leave_a_history(volume);
  Attempt second(volume.options(), {.threads = 8});
  EXPECT_FALSE(second.resumed.bit_exact);
  EXPECT_EQ(second.resumed.step, 8);
  const std::string text = log.text();
  EXPECT_THAT(text, HasSubstr("warning: not bit-exact from here on"));
  EXPECT_THAT(text, HasSubstr("environment.threads: 2 → 8"));
}

TEST(CheckpointerResume, ReadsTheFileOnce) {
  Volume volume;
  CapturedLog log;
  leave_a_history(volume, {.elements = 200'000});
  volume.faults.clear_log();
  Attempt second(volume.options(), {.elements = 200'000});
  std::uint64_t bytes = 0;
  for (const Operation& operation : volume.faults.log()) {
    if (operation.kind == Op::read) bytes += operation.length;
  }
  const std::uint64_t size = volume.disk.get(volume.path(second.resumed.checkpoint)).size();
  EXPECT_GE(bytes, 1'600'000u);
  EXPECT_LT(bytes, size + size / 2 + (2u << 20));  // header and index several times, tensors once
}

TEST(CheckpointerResume, TheStateDigestKnowsNoAttemptAndNoClock) {
  Volume volume;
  CapturedLog log;
  std::string before;
  {
    Attempt first(volume.options());
    first.train_to(3);
    before = first.state();
    EXPECT_EQ(first.checkpointer.finish(), 0);
  }
  volume.clock.advance(std::chrono::hours(5));
  volume.clock.shift_wall(std::chrono::hours(-50));
  Attempt second(volume.options());
  EXPECT_EQ(second.state(), before);
  second.step();
  EXPECT_NE(second.state(), before);
}

}}  // namespace holdfast::test
