// A step at which there is nothing to decide is passed, and no event makes it one that should not be.
// (quiet_step_test.cc says what such a step costs.)
#include <functional>
#include <utility>
#include <vector>

#include "asked_clock.h"

namespace holdfast::test { namespace {

class QuietSteps : public AskedNoticed {
 protected:
  QuietSteps() { commit = {}; }
  // One step; true: it was passed, for which the clock is asked once.
  bool passes() {
    const int before = clock.asked(training);
    step();
    return clock.asked(training) <= before + 1;
  }
  // Steps become quiet. What the writer does after a save may still end one.
  void expect_rest() {
    int in_a_row = 0;
    for (int steps = 0; steps < 200 && in_a_row < 2; ++steps) in_a_row = passes() ? in_a_row + 1 : 0;
    EXPECT_EQ(in_a_row, 2);
  }
  void expect_unrest(int steps = 3) {
    for (int i = 0; i < steps; ++i) EXPECT_FALSE(passes()) << i;
  }
};

TEST_F(QuietSteps, EndWithEachNotice) {
  start();
  const std::vector<std::pair<std::function<void()>, std::function<void()>>> notices = {
      {[&] { announcer.risk(); }, [] {}},
      {[&] { run->checkpointer.request_save(); }, [] {}},
      {[&] { announcer.deadline(now() + 1h); }, [&] { announcer.withdraw(); }},
      {[&] { run->checkpointer.request_stop("enough"); }, [] {}},
  };
  for (const auto& [happens, is_over] : notices) {
    expect_rest();
    happens();
    expect_unrest(1);
    is_over();
  }
  EXPECT_TRUE(run->decision.stop);
  expect_unrest();
}

TEST_F(QuietSteps, DoNotBeginWhileAnEndIsAhead) {
  start();
  announcer.deadline(now() + 1h);
  EXPECT_TRUE(step().saved);
  expect_unrest();
  announcer.withdraw();
  expect_rest();
}

TEST_F(QuietSteps, EndWhenASaveHasFailedUntilOneIsDurable) {
  start();
  expect_rest();
  volume.faults.fail(Op::create, 1, ENOSPC, {.for_ever = true});
  EXPECT_EQ(run->checkpointer.save().wait(), SaveStatus::failed);
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(passes());
    EXPECT_TRUE(run->decision.failure) << "each step tells it";
  }
  volume.faults.clear_faults();
  EXPECT_EQ(run->checkpointer.save().wait(), SaveStatus::durable);
  expect_rest();
}

TEST_F(QuietSteps, DoNotBeginWhileTheWriterWorks) {
  start();
  expect_rest();
  SlowDisk disk(volume);
  const SaveHandle save = run->checkpointer.save();
  disk.await(1);
  expect_unrest();
  disk.finish();
  EXPECT_EQ(save.wait(), SaveStatus::durable);
  expect_rest();
}

TEST_F(QuietSteps, LastUntilASaveFallsDue) {
  for (const SaveEvery& every : {SaveEvery::steps(10), SaveEvery(20s)}) {
    options.every = {every};
    start();
    ASSERT_TRUE(steps_until([&] { return run->decision.saved; }));
    const std::int64_t saved = run->source.step();
    int passed = 0;
    for (int i = 1; i < 10; ++i) {
      passed += passes() ? 1 : 0;
      EXPECT_FALSE(run->decision.saved) << i;
      EXPECT_EQ(run->checkpointer.figures().risk_steps, i) << "they are counted";
    }
    EXPECT_GE(passed, 6) << "all but those right after the save";
    EXPECT_FALSE(passes());
    EXPECT_TRUE(run->decision.saved);
    EXPECT_EQ(run->source.step(), saved + 10);
    EXPECT_EQ(run->checkpointer.finish(), 0);
    run.reset();
  }
}

}}  // namespace holdfast::test
