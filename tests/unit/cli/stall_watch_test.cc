#include "holdfast/cli/supervise/stall_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace holdfast::test { namespace {

using namespace std::chrono_literals;

std::string line(const std::string& event, Duration up, std::int64_t step, const std::string& more = "") {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(up).count();
  return R"({"event":")" + event + R"(","t":1,"up_ms":)" + std::to_string(ms) + R"(,"step":)" +
         std::to_string(step) + more + "}\n";
}

// A writer's progress every ten seconds.
class StallWatchTest : public testing::Test {
 protected:
  void train(Duration until, std::int64_t steps_each, const std::string& more = "") {
    for (; up_ < until; up_ += 10s) watch_.hear(line("progress", up_, step_ += steps_each, more));
  }
  void start() { watch_.hear(line("start", up_, step_)); }

  StallWatch watch_{std::nullopt};
  Duration up_{};
  std::int64_t step_ = 100;
};

TEST_F(StallWatchTest, TellsHowLongTheStepStandsStill) {
  EXPECT_EQ(watch_.standing(), std::nullopt) << "nothing trains yet";
  start();
  train(60s, 5);
  EXPECT_EQ(watch_.standing(), 0s);
  train(20min, 0);
  EXPECT_EQ(watch_.standing(), 19min) << "from the last step's line to the newest";
  EXPECT_EQ(watch_.limit(), 10min);
  EXPECT_EQ(watch_.step(), step_);
  train(21min, 1);
  EXPECT_EQ(watch_.standing(), 0s);
}

TEST_F(StallWatchTest, TheFirstStepCountsFromTheStart) {
  start();
  train(11min, 0);
  EXPECT_GE(watch_.standing(), 10min);
}

TEST_F(StallWatchTest, EvaluationsDoNotCount) {
  start();
  train(1min, 1);
  train(2h, 0, R"(,"phase":"evaluation")");
  EXPECT_EQ(watch_.standing(), 0s);
  train(2h + 5min, 0);
  EXPECT_LE(watch_.standing(), 5min);
  train(2h + 6min, 1);
  EXPECT_EQ(watch_.limit(), 10min) << "nor is it a step's time";
}

TEST_F(StallWatchTest, PausesDoNotCount) {
  start();
  train(1min, 1);
  watch_.hear(line("pause", up_, step_));
  train(2h, 0);
  EXPECT_EQ(watch_.standing(), std::nullopt);
  watch_.hear(line("go on", up_, step_));
  EXPECT_EQ(watch_.standing(), 0s);
}

TEST_F(StallWatchTest, AWriterThatIsBusyProvesNothing) {
  start();
  train(1min, 1);
  up_ += 30min;  // a large checkpoint, a slow volume, and the training waits for it
  train(up_ + 10s, 0);
  EXPECT_EQ(watch_.standing(), 0s);
}

TEST_F(StallWatchTest, AfterTheEndNothingIsExpected) {
  start();
  train(1min, 1);
  watch_.hear(line("end", up_, step_));
  train(2h, 0);
  EXPECT_EQ(watch_.standing(), std::nullopt);
  watch_.begin();
  EXPECT_EQ(watch_.standing(), std::nullopt);
}

TEST_F(StallWatchTest, LongStepsMayTakeLonger) {
  start();
  for (int i = 0; i < 50; ++i) {
    train(up_ + 110s, 0);
    train(up_ + 10s, 1);  // one step in two minutes
  }
  EXPECT_EQ(watch_.limit(), 20 * 2min);
}

TEST_F(StallWatchTest, AUsersLimitCounts) {
  StallWatch watch(3min);
  EXPECT_EQ(watch.limit(), 3min);
}

TEST_F(StallWatchTest, TornAndForeignLinesAreSkipped) {
  const std::string text = line("start", 0s, 1) + "{\n[]\nnull\n" + R"({"event":7,"up_ms":1})" + "\n" +
                           line("progress", 10s, 1) + line("progress", 20s, 1);
  for (const char letter : text) watch_.hear(std::string(1, letter));
  EXPECT_EQ(watch_.standing(), 20s);
}

}}  // namespace holdfast::test
