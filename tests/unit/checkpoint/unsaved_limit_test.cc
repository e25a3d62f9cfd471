// A run whose saves fail says so, louder where only a person can help, and gives up when it was told to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "rig.h"
#include "together.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

std::size_t count(const std::string& text, const std::string& word) {
  std::size_t found = 0;
  for (auto at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

class Unsaved : public testing::Test {
 protected:
  Unsaved() { clear(); }
  ~Unsaved() override { clear(); }
  static void clear() {
    unsetenv("HOLDFAST_SUPERVISOR");
    unsetenv("HOLDFAST_GIVE_UP_UNSAVED");
  }
  CheckpointerOptions options(std::optional<Duration> give_up = {},
                              SaveTriggers every = SaveEvery::steps(1)) {
    CheckpointerOptions options = volume_->options(std::move(every));
    options.writing.give_up_unsaved = give_up;
    return options;
  }
  // Steps of a minute, up to a stop. Returns the minutes.
  int minutes(Attempt& run, int most) {
    for (int i = 0; i < most; ++i) {
      volume_->clock.advance(1min);
      run.step();
      if (run.decision.stop) return i + 1;
      if (run.decision.saved) run.decision.save.wait();
    }
    return most;
  }
  static void break_state(Attempt& run) {
    run.source.on_copy = [] { throw UsageError("tensor 'means' has 5 rows, and had 4"); };
  }
  RunState state() {
    auto disk = volume_->disk.copy();
    return read_run_state(*disk.open_directory(kRun, false)).value();
  }

  std::unique_ptr<Volume> volume_ = std::make_unique<Volume>();
};

TEST_F(Unsaved, WhatCannotPassByItselfIsSaidAtEachIntervalAndLouder) {
  CapturedLog log;
  Attempt run(options());
  run.train_to(1);
  break_state(run);
  minutes(run, 6);
  const std::string text = log.text();
  EXPECT_EQ(count(text, "warning: staging step "), 1U) << text;
  EXPECT_EQ(count(text, "error: staging step "), 5U) << text;
  EXPECT_THAT(
      text, AllOf(HasSubstr("'means' has 5 rows"), HasSubstr("no save has succeeded for 5m 00s (6 in a row"),
                  HasSubstr("this cannot pass by itself"), HasSubstr("step 1 is the last durable one")));
}

TEST_F(Unsaved, AnIntervalOfOneStepDoesNotFillTheLog) {
  CapturedLog log;
  Attempt run(options());
  break_state(run);
  for (int i = 0; i < 100; ++i) {
    volume_->clock.advance(1s);
    run.step();
  }
  const std::string text = log.text();
  EXPECT_LE(count(text, "cannot pass by itself"), 11U) << text;
  EXPECT_GE(count(text, "cannot pass by itself"), 9U) << text;
}

TEST_F(Unsaved, AFullDiskIsSaidOnceAndAReadOnlyOneAtEachInterval) {
  for (const int error : {ENOSPC, EROFS}) {
    Volume fresh;
    CapturedLog log;
    Attempt run(fresh.options(SaveEvery::steps(1)));
    run.train_to(1);
    fresh.faults.fail(Op::sync_file, 1, error, {.for_ever = true});
    for (int i = 0; i < 5; ++i) {
      fresh.clock.advance(1min);
      run.step();
      if (run.decision.saved) run.decision.save.wait();
    }
    const std::string text = log.text();
    EXPECT_EQ(count(text, "warning: save of step "), 1U) << text;
    EXPECT_EQ(count(text, "error: save of step "), error == ENOSPC ? 0U : 4U) << text;
  }
}

TEST_F(Unsaved, GivesUpWith74WhereItWasToldTo) {
  for (const bool full : {true, false}) {
    volume_ = std::make_unique<Volume>();
    CapturedLog log;
    Attempt run(options(10min));
    run.train_to(1);
    full ? volume_->disk.set_capacity(1000) : break_state(run);
    EXPECT_EQ(minutes(run, 60), 12) << "the first failed at the first minute";
    EXPECT_THAT(run.decision.reason, HasSubstr("no save has succeeded for 10m 00s"));
    EXPECT_EQ(run.checkpointer.finish(), 74);
    EXPECT_EQ(run.checkpointer.last_durable().step, 1);
    EXPECT_EQ(run.checkpointer.stop_reason().find("no save has succeeded"), 0U);
    volume_->disk.set_capacity(std::numeric_limits<std::uint64_t>::max());
  }
}

TEST_F(Unsaved, WhatSucceedsAtLastIsAnInterruption) {
  CapturedLog log;
  Attempt run(options(10min));
  run.train_to(1);
  volume_->disk.set_capacity(1000);
  minutes(run, 60);
  volume_->disk.set_capacity(std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(run.checkpointer.finish(), 75);
  EXPECT_EQ(state().phase, RunPhase::interrupted);
  EXPECT_EQ(run.checkpointer.last_durable().step, run.source.step());
}

TEST_F(Unsaved, ASuccessBetweenBeginsTheTimeAnew) {
  CapturedLog log;
  Attempt run(options(10min));
  for (int i = 0; i < 3; ++i) {
    volume_->disk.set_capacity(1000);
    EXPECT_EQ(minutes(run, 9), 9);
    EXPECT_FALSE(run.decision.stop);
    volume_->disk.set_capacity(std::numeric_limits<std::uint64_t>::max());
    minutes(run, 1);
  }
  EXPECT_EQ(run.checkpointer.finish(), 0);
}

// The interval may be longer than the limit: then the try that decides is not waited for.
TEST_F(Unsaved, ALongIntervalDoesNotDelayIt) {
  CapturedLog log;
  Attempt run(options(10min, SaveEvery::steps(1000)));
  run.train_to(1);
  volume_->disk.set_capacity(1000);
  run.step();
  run.checkpointer.save().wait();
  EXPECT_LE(minutes(run, 100), 13);
  EXPECT_TRUE(run.decision.stop);
  EXPECT_EQ(run.checkpointer.finish(), 74);
}

TEST_F(Unsaved, ByDefaultItTrainsOnAndUnderASupervisorForAnHourWhereNothingHelps) {
  struct Case {
    bool supervised;
    bool full;
    const char* variable;
    std::optional<Duration> option;
    int expected;
  };
  for (const Case& one : {Case{false, false, nullptr, {}, 200}, Case{true, true, nullptr, {}, 200},
                          Case{true, false, nullptr, {}, 62}, Case{true, false, nullptr, Duration(0), 200},
                          Case{true, false, "0s", 5min, 200}, Case{false, true, "5min", {}, 7},
                          Case{true, false, "5min", 20min, 7}}) {
    clear();
    if (one.supervised) setenv("HOLDFAST_SUPERVISOR", "host-1/1/", 1);
    if (one.variable != nullptr) setenv("HOLDFAST_GIVE_UP_UNSAVED", one.variable, 1);
    volume_ = std::make_unique<Volume>();
    CapturedLog log;
    Attempt run(options(one.option));
    run.train_to(1);
    one.full ? volume_->disk.set_capacity(1000) : break_state(run);
    EXPECT_EQ(minutes(run, 200), one.expected) << one.supervised << one.full << (one.variable != nullptr);
    volume_->disk.set_capacity(std::numeric_limits<std::uint64_t>::max());
    run.source.on_copy = nullptr;
    EXPECT_EQ(run.checkpointer.finish(), one.expected == 200 ? 0 : 75);
  }
  setenv("HOLDFAST_GIVE_UP_UNSAVED", "soon", 1);
  EXPECT_THROW(Attempt run(options()), UsageError);
  clear();
  EXPECT_THROW(Attempt run(options(-1s)), UsageError);
}

TEST_F(Unsaved, AProgramThatTrainsOnUnsavedIsNotEndedByASupervisorsDefault) {
  setenv("HOLDFAST_SUPERVISOR", "host-1/1/", 1);
  for (const bool limited : {false, true}) {
    volume_ = std::make_unique<Volume>();
    CapturedLog log;
    CheckpointerOptions wants = options(limited ? std::optional<Duration>(10min) : std::nullopt);
    wants.writing.train_unsaved = true;
    Attempt run(wants);
    break_state(run);
    EXPECT_EQ(minutes(run, 200), limited ? 12 : 200);
    run.checkpointer.finish();
  }
}

TEST_F(Together, AllRanksGiveUpTogether) {
  options.every = SaveEvery::steps(2);
  options.writing.give_up_unsaved = 10min;
  live(2, [&](Member& one) {
    if (one.rank == 0) volume->faults.fail(Op::sync_file, 1, EIO, {.for_ever = true});
    one.step_time = 1min;
    one.train_to(100);
    EXPECT_TRUE(one.decision.stop) << one.rank;
    one.finish();
  });
  EXPECT_THAT(errors(), Each(std::string()));
  EXPECT_THAT(codes(), Each(74));
  EXPECT_LE(member(0).source.step(), 20);
  EXPECT_EQ(member(0).source.step(), member(1).source.step());
}

}}  // namespace holdfast::test
