// Numbers in a progress record that are no times: a run without an end in sight, or a record that somebody wrote.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "holdfast/cli/report/status_report.h"

namespace holdfast { namespace {

using namespace std::chrono_literals;

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

RunView running() {
  RunView view;
  view.now = WallTime(std::chrono::seconds(1'700'000'000));
  view.newest.attempt = 1;
  view.newest.state = RunState{};
  view.newest.state->attempt = 1;
  view.newest.state->phase = RunPhase::running;
  view.progress = RunProgress{.attempt = 1, .beat = 1, .unix_ms = 1'700'000'000'000, .step = 10};
  return view;
}

TEST(Status, ARunWithoutAnEndInSightHasNoTimeLeft) {
  RunView view = running();
  view.progress->steps_per_second = 10;
  view.progress->last_step = 10'000;
  EXPECT_EQ(status_report(view, {})["time_left_s"], 999.0);
  view.progress->last_step = kMost;
  EXPECT_TRUE(status_report(view, {})["time_left_s"].is_null());
}

TEST(Status, AnAgeBeyondAllClocksIsLong) {
  RunView view = running();
  view.progress->risk_ms = kMost;
  EXPECT_EQ(status_report(view, {.max_unsaved = 1h})["verdict"], "unsaved");
  view.progress->save_interval_ms = kMost;
  view.progress->failure = "no space";
  EXPECT_EQ(status_report(view, {})["verdict"], "healthy") << "no three intervals of all time";
  view.progress->still_ms = kMost;
  EXPECT_EQ(status_report(view, {})["verdict"], "stalled");
}

TEST(Status, ARecordOfNoClockIsNone) {
  RunProgress progress{.attempt = 1, .beat = 1, .unix_ms = 1'700'000'000'000};
  EXPECT_TRUE(progress_from_record(to_record(progress)));
  progress.unix_ms = kMost;
  EXPECT_FALSE(progress_from_record(to_record(progress)));
}

}}  // namespace holdfast
