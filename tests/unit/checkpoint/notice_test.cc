// A notice file stops a run as SIGTERM does, where a notice is to end it: commit, then 75.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "rig.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

class NoticedRun : public testing::Test {
 protected:
  CheckpointerOptions options() {
    CheckpointerOptions options = volume_.options();
    options.notices.notice_file = path_;
    options.notices.on_notice = OnNotice::exit;
    return options;
  }
  // Trains until `done` says so, at most for a minute.
  static bool train_until(Attempt& attempt, const std::function<bool()>& done) {
    for (int i = 0; i < 60'000 && !done(); ++i) {
      attempt.step();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return done();
  }

  TemporaryFolder folder_;
  const std::filesystem::path path_ = folder_.path() / "notice";
  Volume volume_;
  CapturedLog log_;
};

TEST_F(NoticedRun, StopsWhenTheFileAppears) {
  Attempt attempt(options());
  attempt.step();
  EXPECT_FALSE(attempt.decision.stop);
  write_text(path_, R"({"action": "terminate", "in_seconds": 100, "text": "node drain"})");
  ASSERT_TRUE(train_until(attempt, [&] { return attempt.decision.stop; }));
  EXPECT_EQ(attempt.decision.reason, "the notice file says terminate: node drain");
  EXPECT_EQ(attempt.checkpointer.finish(), 75);
  EXPECT_EQ(attempt.checkpointer.last_durable().step, attempt.source.step());
  EXPECT_EQ(attempt.checkpointer.stop_reason(), "the notice file says terminate: node drain");
}

TEST_F(NoticedRun, StopsWithoutATimeAsWell) {
  Attempt attempt(options());
  write_text(path_, "");
  ASSERT_TRUE(train_until(attempt, [&] { return attempt.decision.stop; }));
  EXPECT_EQ(attempt.checkpointer.finish(), 75);
  EXPECT_EQ(attempt.checkpointer.last_durable().step, attempt.source.step());
}

TEST_F(NoticedRun, AFileThatIsThereAlreadyStopsItBeforeTheFirstStep) {
  write_text(path_, "{}");
  Attempt attempt(options());
  EXPECT_TRUE(attempt.checkpointer.tick());
  EXPECT_EQ(attempt.checkpointer.finish(), 75);
}

TEST_F(NoticedRun, CheckpointSavesAndGoesOn) {
  Attempt attempt(options());
  write_text(path_, R"({"action": "checkpoint"})");
  ASSERT_TRUE(train_until(attempt, [&] { return attempt.decision.saved; }));
  EXPECT_FALSE(attempt.decision.stop);
  EXPECT_FALSE(attempt.step().stop);
  EXPECT_EQ(attempt.checkpointer.finish(), 0);
}

TEST_F(NoticedRun, WhatWasToldToStopIsNotCalledComplete) {
  write_text(path_, "{}");
  Attempt attempt(options());
  EXPECT_TRUE(attempt.step().stop);
  std::filesystem::remove(path_);
  // Time for the withdrawal to be heard: it does not make a finished run of this.
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  EXPECT_EQ(attempt.checkpointer.finish(), 75);
}

TEST_F(NoticedRun, TheEnvironmentAddsAFile) {
  const std::filesystem::path other = folder_.path() / "other";
  setenv("HOLDFAST_NOTICE_FILE", other.c_str(), 1);
  {
    Attempt attempt(options());
    write_text(other, "{}");
    EXPECT_TRUE(train_until(attempt, [&] { return attempt.decision.stop; }));
    EXPECT_EQ(attempt.checkpointer.finish(), 75);
  }
  std::filesystem::remove(other);
  {
    CheckpointerOptions alone = volume_.options();
    alone.notices.on_notice = OnNotice::exit;
    write_text(other, "{}");
    Attempt attempt(alone);
    EXPECT_TRUE(attempt.checkpointer.tick());
    EXPECT_EQ(attempt.checkpointer.finish(), 75);
  }
  unsetenv("HOLDFAST_NOTICE_FILE");
}

}}  // namespace holdfast::test
