// The ledgers that a Checkpointer writes, and what an account of them says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "holdfast/base/system/machine.h"
#include "holdfast/io/line_file.h"
#include "holdfast/ledger/goodput.h"
#include "holdfast/ledger/loss_ring.h"
#include "rig.h"
#include "support/ledger_lines.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using testing::SizeIs;
using Json = nlohmann::json;

// Ledgers as a Checkpointer writes them: a life that is killed, one that is stopped, one that completes.
TEST(LedgerOfARun, IsAccountedFor) {
  Volume volume;
  const auto life = [&](int steps, int save_at, bool stop, bool finish) {
    Attempt attempt(volume.options());
    for (int i = 1; i <= steps; ++i) {
      volume.clock.advance(1s);
      attempt.step();
      if (i == save_at) attempt.checkpointer.save().wait();
    }
    if (stop) attempt.checkpointer.request_stop("enough");
    if (finish) attempt.checkpointer.finish();
  };
  life(10, 6, false, false);
  life(10, 0, true, true);
  life(4, 0, false, true);
  const auto run_directory = volume.disk.open_directory(kRun, false);
  const RunAccount run = account_for(read_lives(*run_directory));
  ASSERT_THAT(run.lives, SizeIs(3));
  EXPECT_EQ(run.skipped_lines, 0);
  EXPECT_EQ(run.lives[0].kept_step, 6);
  EXPECT_EQ(run.lives[0].time.kept, 6s);
  EXPECT_EQ(run.lives[1].from_step, 6);
  EXPECT_EQ(run.lives[1].kept_step, 16);
  EXPECT_EQ(run.lives[1].ending, LifeEnding::interrupted);
  EXPECT_EQ(run.lives[1].reason, "enough");
  EXPECT_EQ(run.lives[2].kept_step, 20);
  EXPECT_EQ(run.lives[2].ending, LifeEnding::complete);
  EXPECT_EQ(run.time.kept, 20s);
}

// Full at the start, and away in the middle. What waits is written when it can be, and the start before all.
TEST(LedgerOfARun, AVolumeThatIsAwayForAWhileCostsNoLine) {
  Volume volume;
  std::atomic<bool> away{true};
  volume.faults.set_hook([&](const Operation& operation) {
    const bool of_ledger = operation.path.find("ledger-") != std::string::npos;
    if (away && of_ledger && operation.kind != Op::close) throw IoError("write", operation.path, ENOSPC);
  });
  {
    Attempt attempt(volume.options());
    const auto steps = [&](int count) {
      for (int i = 0; i < count; ++i) {
        volume.clock.advance(1s);
        attempt.step();
      }
    };
    steps(5);
    ASSERT_EQ(attempt.checkpointer.save().wait(), SaveStatus::durable);
    away = false;
    ASSERT_TRUE(soon([&] { return ledger_lines(volume.disk, kRun, 1).size() >= 3; }));
    away = true;
    steps(5);
    ASSERT_EQ(attempt.checkpointer.save().wait(), SaveStatus::durable);
    away = false;
    EXPECT_EQ(attempt.checkpointer.finish(), 0);
  }
  const auto run_directory = volume.disk.open_directory(kRun, false);
  const auto lives = read_lives(*run_directory);
  ASSERT_THAT(lives, SizeIs(1));
  EXPECT_TRUE(lives[0].started);
  EXPECT_EQ(lives[0].skipped_lines, 0);
  EXPECT_THAT(lives[0].commits, SizeIs(2));
  EXPECT_TRUE(lives[0].end);
  EXPECT_THAT(losses_in(ledger_lines(volume.disk, kRun, 1)), SizeIs(10));
}

TEST(LedgerOfARun, TellsItsStartItsCommitsAndItsEnd) {
  Volume volume;
  {
    Attempt attempt(volume.options());
    volume.clock.advance(3s);
    attempt.step();
    attempt.checkpointer.save().wait();
    attempt.checkpointer.request_stop("enough");
    volume.clock.advance(2s);
    attempt.step();
    EXPECT_EQ(attempt.checkpointer.finish(), 75);
  }
  std::vector<Json> lines;
  for (const std::string& line : ledger_lines(volume.disk, kRun, 1)) {
    lines.push_back(Json::parse(line));
  }
  const auto find = [&](const std::string& event) {
    for (const Json& line : lines) {
      if (line["event"] == event) return line;
    }
    return Json::object();
  };
  EXPECT_EQ(lines.front()["event"], "start");
  EXPECT_EQ(lines.front()["attempt"], 1);
  EXPECT_EQ(lines.front()["host"], host_name());
  EXPECT_EQ(lines.front()["boot"], boot_id());
  EXPECT_EQ(find("commit")["step"], 1);
  EXPECT_EQ(find("commit")["boundary_ms"], 3000);
  EXPECT_EQ(find("notice")["kind"], "stop");
  EXPECT_EQ(find("notice")["text"], "enough");
  EXPECT_EQ(lines.back()["event"], "end");
  EXPECT_EQ(lines.back()["phase"], "interrupted");
  EXPECT_EQ(lines.back()["code"], 75);
  EXPECT_EQ(lines.back()["step"], 2);
  EXPECT_EQ(lines.back()["durable_step"], 2);
  EXPECT_EQ(lines.back()["up_ms"], 5000);
}

}}  // namespace holdfast::test
