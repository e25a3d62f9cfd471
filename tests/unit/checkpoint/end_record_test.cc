// The last lines of an attempt: each is written whatever becomes of the other, and not over a newer attempt's.
#include "holdfast/checkpoint/internal/end_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>

#include "holdfast/writing/file_verifier.h"
#include "support/captured_log.h"
#include "support/ledger_lines.h"
#include "support/run_disk.h"

namespace holdfast::test { namespace {

using internal::write_end;
using testing::AllOf;
using testing::HasSubstr;

class EndRecord : public testing::Test {
 protected:
  EndRecord() : store(volume.faults, volume.clock, {.directory = kRun}, verifier) {
    store.preflight();
    end.attempt = store.claim();
    store.recover();
    end.phase = RunPhase::interrupted;
    end.step = 12;
    end.durable_step = 10;
    end.reason = "SIGTERM";
    end.exit_code = 75;
  }
  std::optional<RunState> state() { return read_run_state(*volume.disk.open_directory(kRun, false)); }
  std::vector<std::string> lines() { return ledger_lines(volume.disk, kRun, end.attempt); }
  void break_writes_to(const std::string& part) {
    volume.faults.set_hook([part](const Operation& operation) {
      if (operation.mutating && (operation.path + operation.to).find(part) != std::string::npos) {
        throw IoError("write", operation.path, ENOSPC);
      }
    });
  }

  RunDisk volume;
  CapturedLog log;
  FileVerifier verifier{1};
  CheckpointStore store;
  Ledger ledger{volume.clock};
  RunState end;
};

TEST_F(EndRecord, IsTheLastLineOfTheLedgerAndTheRunState) {
  ledger.pause(12, "the end is near");
  EXPECT_FALSE(write_end(store, ledger, end));
  const auto written = lines();
  ASSERT_GE(written.size(), 2U);
  EXPECT_THAT(written.front(), HasSubstr("pause")) << "what waited comes before the end";
  EXPECT_THAT(written.back(), AllOf(HasSubstr(R"("event":"end")"), HasSubstr(R"("code":75)"),
                                    HasSubstr(R"("step":12)"), HasSubstr("SIGTERM")));
  ASSERT_TRUE(state());
  EXPECT_EQ(state()->phase, RunPhase::interrupted);
  EXPECT_EQ(state()->exit_code, 75);
  EXPECT_EQ(state()->durable_step, 10);
  EXPECT_EQ(state()->reason, "SIGTERM");
}

TEST_F(EndRecord, ALedgerThatCannotBeWrittenCostsNoRunState) {
  break_writes_to("ledger-");
  EXPECT_FALSE(write_end(store, ledger, end));
  EXPECT_TRUE(lines().empty());
  ASSERT_TRUE(state());
  EXPECT_EQ(state()->phase, RunPhase::interrupted);
}

TEST_F(EndRecord, FiguresThatCannotBeCollectedCostNoRunState) {
  ledger.observe([]() -> Ledger::Sample { throw std::bad_alloc(); });
  EXPECT_FALSE(write_end(store, ledger, end));
  ASSERT_TRUE(state());
  EXPECT_EQ(state()->phase, RunPhase::interrupted);
}

TEST_F(EndRecord, ARunStateThatCannotBeWrittenIsLoggedAndEndsNothing) {
  break_writes_to(".state.json");
  EXPECT_FALSE(write_end(store, ledger, end)) << "no newer attempt exists";
  EXPECT_THAT(lines().back(), HasSubstr(R"("event":"end")"));
  EXPECT_THAT(log.text(), HasSubstr("the run state could not be written"));
}

TEST_F(EndRecord, ANewerAttemptIsNamedAndItsStateStands) {
  FileVerifier other_verifier{1};
  CheckpointStore newer(volume.disk, volume.clock, {.directory = kRun}, other_verifier);
  newer.preflight();
  const AttemptNumber attempt = newer.claim();
  newer.recover();
  newer.write_run_state({.attempt = attempt, .phase = RunPhase::running});
  const auto superseded = write_end(store, ledger, end);
  ASSERT_TRUE(superseded);
  EXPECT_THAT(*superseded, HasSubstr("attempt " + std::to_string(attempt)));
  EXPECT_EQ(state()->attempt, attempt);
  EXPECT_EQ(state()->phase, RunPhase::running);
}

}}  // namespace holdfast::test
