// `holdfast health`: does a run train, and would it hear an interruption?
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <utility>

#include "holdfast/store/claim.h"
#include "holdfast/store/names.h"
#include "holdfast/store/run_progress.h"
#include "support/ledger_text.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Health : public testing::Test {
 protected:
  Health() { fs::create_directories(directory() + "/attempts"); }
  std::string directory() const { return folder_.path() / "run"; }
  Ended run(std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {HOLDFAST_BIN_DIR "/holdfast", "health", directory()});
    return Subprocess(std::move(more)).wait();
  }
  void claim(std::uint64_t attempt) const {
    std::ofstream(fs::path(directory()) / "attempts" / claim_name(attempt)) << "";
  }
  // Of an attempt that began that many seconds ago, its start-up of 10 s included.
  static LedgerText ledger(double age) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return LedgerText(1, 0, 0, std::chrono::duration<double>(now).count() - age + 10, 10, "a");
  }
  void put(const LedgerText& text, std::uint64_t attempt = 1) const {
    claim(attempt);
    std::ofstream(fs::path(directory()) / ledger_name(attempt)) << text.text();
  }
  static std::string source(const std::string& name, double blind_now_ms) {
    std::string members = R"("name":")" + name + R"(","polls":90,"failures":30,"blind_ms":90000)";
    if (blind_now_ms > 0) {
      members += R"(,"blind_now_ms":)" + std::to_string(blind_now_ms) + R"(,"why":"status 403")";
    }
    return members;
  }

  TemporaryFolder folder_;
};

TEST_F(Health, HelpNamesTheExitCodes) {
  const Ended ended = Subprocess({HOLDFAST_BIN_DIR "/holdfast", "health", "--help"}).wait();
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_THAT(ended.out, HasSubstr("1 trains, and a source is blind or its saves fail"));
  EXPECT_THAT(ended.out, HasSubstr("Example:\n  holdfast health "));
}

TEST_F(Health, ARunThatTrainsAndSeesIsWell) {
  put(ledger(100).line("source", 20, source("ec2", 0)).progress(90, 1234));
  const Ended ended = run();
  EXPECT_EQ(ended.exit_code, 0) << ended.out << ended.err;
  EXPECT_EQ(ended.out, "attempt 1 trains, at step 1,234, ec2 sees\n");
}

TEST_F(Health, ABlindSourceHasAnExitCodeUntilItSees) {
  LedgerText text = ledger(200);
  text.line("source", 100, source("ec2", 0)).line("source", 170, source("ec2", 50'000)).progress(170, 7);
  put(text);
  EXPECT_EQ(run().exit_code, 0) << "for less than a minute";
  EXPECT_EQ(run({"--blind-after", "40s"}).exit_code, 1);
  put(text.line("source", 190, source("ec2", 70'000)));
  const Ended ended = run();
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_EQ(ended.out,
            "attempt 1 is blind: its interruption source ec2 has not seen for 1m 10s (status 403)\n");
  put(text.line("source", 195, source("ec2", 0)));
  EXPECT_EQ(run().exit_code, 0);
}

TEST_F(Health, ARunWhoseSavesFailForThreeIntervalsIsNotWell) {
  put(ledger(1000).line("source", 20, source("ec2", 0)).progress(990, 1234));
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  RunProgress told{.attempt = 1, .beat = 9, .step = 1234, .durable_step = 34, .save_interval_ms = 300'000};
  told.unix_ms = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  told.failure = "save of step 1200 failed: no space";
  for (const auto& [risk, code] : {std::pair{850'000, 0}, std::pair{950'000, 1}}) {
    told.risk_ms = risk;
    std::ofstream(fs::path(directory()) / "attempts" / progress_name(1)) << to_record(told);
    const Ended ended = run();
    EXPECT_EQ(ended.exit_code, code) << ended.out;
    EXPECT_THAT(ended.out, HasSubstr(code == 1 ? "attempt 1 is unsaved: 15m " : "attempt 1 trains"));
  }
}

TEST_F(Health, WhereNobodyTrainsIsNoHealth) {
  EXPECT_EQ(run().exit_code, 3);
  claim(1);
  EXPECT_THAT(run().out, HasSubstr("has not begun to train"));
  LedgerText text = ledger(3600);
  put(text.progress(3000, 5));
  const Ended silent = run();
  EXPECT_EQ(silent.exit_code, 3);
  EXPECT_THAT(silent.out, HasSubstr("has written nothing for"));
  EXPECT_EQ(run({"--silent-after", "1h"}).exit_code, 0);
  put(text.end(3599, "interrupted", 75, 5));
  EXPECT_EQ(run({"--silent-after", "1h"}).exit_code, 3);
}

TEST_F(Health, WhatCannotBeReadOrUnderstoodIsSaid) {
  put(ledger(100).raw("\x01[{{\n{\"event\":5}\n").progress(90, 3).raw(R"({"event":"sour)"));
  EXPECT_EQ(run().exit_code, 0);
  EXPECT_EQ(run({"--blind-after", "soon"}).exit_code, 64);
  fs::remove_all(directory());
  EXPECT_EQ(run().exit_code, 2);
}

}}  // namespace holdfast::test
