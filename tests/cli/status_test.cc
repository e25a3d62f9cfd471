// `holdfast status`: how is a run? What it says and with which exit code, for every way a run can be.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "holdfast/base/text.h"
#include "holdfast/store/claim.h"
#include "holdfast/store/names.h"
#include "holdfast/store/run_progress.h"
#include "support/ledger_text.h"
#include "support/soon.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::json;

std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string utc(double seconds_ago) {
  return format_utc(
      WallTime(std::chrono::milliseconds(now_ms() - static_cast<std::int64_t>(seconds_ago * 1e3))));
}

class Status : public testing::Test {
 protected:
  Status() { fs::create_directories(run_ / "attempts"); }

  Ended status(std::vector<std::string> more = {},
               const std::map<std::string, std::string>& environment = {}) const {
    more.insert(more.begin(), {HOLDFAST_BIN_DIR "/holdfast", "status", run_.string()});
    return Subprocess(std::move(more), environment).wait();
  }
  // The JSON and the screen agree on the exit code.
  Json report(std::vector<std::string> more = {}) const {
    const Ended screen = status(more);
    more.emplace_back("--json");
    const Ended ended = status(more);
    Json json = Json::parse(ended.out, nullptr, false);
    EXPECT_TRUE(json.is_object()) << ended.out;
    if (!json.is_object()) return {};
    EXPECT_EQ(json.value("exit_code", -1), ended.exit_code);
    EXPECT_EQ(ended.exit_code, screen.exit_code) << screen.out;
    EXPECT_EQ(json.value("schema", 0), 1);
    return json;
  }

  // This test claims as if it trained: it is alive.
  void claim(std::uint64_t attempt, const std::string& text = claim_text("")) const {
    std::ofstream(run_ / "attempts" / claim_name(attempt)) << text;
  }
  void claim_of_the_dead(std::uint64_t attempt) const {
    std::string text = claim_text("");
    const std::size_t at = text.find("\"pid\":") + 6;
    text.replace(at, text.find(',', at) - at, "999999999");
    claim(attempt, text);
  }
  // Of a machine that is not this one, with no time: as earlier versions claimed.
  void claim_elsewhere(std::uint64_t attempt) const {
    claim(attempt, R"({"boot_id":"other","host":"node-7","pid":5,"pid_start":6,"pid_ns":7})");
  }
  void state(RunPhase phase, std::int64_t step, std::int64_t durable, int code = 0,
             const std::string& reason = {}, std::uint64_t attempt = 1, double age = 1) const {
    RunState state{
        .attempt = attempt, .phase = phase, .step = step, .durable_step = durable, .reason = reason};
    state.exit_code = code;
    state.host = "node-7";
    state.time = utc(age);
    std::ofstream(run_ / "attempts" / state_name(attempt)) << to_json(state);
  }
  void ledger(const LedgerText& text, std::uint64_t attempt = 1) const {
    std::ofstream(run_ / ledger_name(attempt)) << text.text();
  }
  static LedgerText began(double seconds_ago) {
    return LedgerText(1, 0, 0, static_cast<double>(now_ms()) / 1e3 - seconds_ago + 10, 10, "b");
  }
  void progress(RunProgress told, double age = 3, std::uint64_t attempt = 1) const {
    told.attempt = attempt;
    told.beat = 5;
    told.unix_ms = now_ms() - static_cast<std::int64_t>(age * 1e3);
    std::ofstream(run_ / "attempts" / progress_name(attempt)) << to_record(told);
  }
  static RunProgress at_step(std::int64_t step) {
    RunProgress told;
    told.step = step;
    told.last_step = 50'000;
    told.loss = 0.1234;
    told.steps_per_second = 8.5;
    told.durable_step = step - 140;
    told.risk_steps = 140;
    told.risk_ms = 16'000;
    told.next_save_ms = 47'000;
    told.saves = 12;
    return told;
  }

  TemporaryFolder folder_;
  const fs::path run_ = folder_.path() / "run";
};

TEST_F(Status, ShowsARunThatTrains) {
  claim(1);
  state(RunPhase::running, 12'200, 12'200);
  ledger(began(3600).progress(3590, 12'340));
  progress(at_step(12'340));
  const Ended ended = status();
  EXPECT_EQ(ended.exit_code, 0) << ended.out << ended.err;
  EXPECT_EQ(ended.err, "");
  EXPECT_THAT(ended.out, HasSubstr("run        training\n"));
  EXPECT_THAT(ended.out, HasSubstr("step       12,340 of 50,000 (24.7 %), 8.5 steps/s, about 1h 13m left\n"));
  EXPECT_THAT(ended.out, HasSubstr("loss       0.1234\n"));
  EXPECT_THAT(ended.out, HasSubstr("durable    step 12,200"));
  EXPECT_THAT(ended.out, HasSubstr("at risk    140 steps, "));
  EXPECT_THAT(ended.out, HasSubstr("next save  in 4"));
  EXPECT_THAT(ended.out, HasSubstr("volume     "));
  EXPECT_LT(lines_of(ended.out).size(), 20u) << "one screen";
  const Json json = report();
  EXPECT_EQ(json["verdict"], "healthy");
  EXPECT_EQ(json["phase"], "training");
  EXPECT_EQ(json["process"], "runs");
  EXPECT_EQ(json["step"], 12'340);
  EXPECT_EQ(json["loss"], 0.1234);
  EXPECT_EQ(json["durable"]["step"], 12'200);
  EXPECT_EQ(json["risk"]["steps"], 140);
  EXPECT_GT(json["volume"]["free_bytes"], 0);
}

TEST_F(Status, CountsRestartsOfTheTrainingAlone) {
  claim(3);
  state(RunPhase::interrupted, 90, 90, 75, {}, 3);
  EXPECT_EQ(report()["restarts"], 2) << "a start has removed the claims of 1 and 2";
  claim(4, claim_text("prune"));
  claim(5, claim_text("mirror"));
  claim(6);
  state(RunPhase::running, 90, 90, 0, {}, 6);
  EXPECT_EQ(report()["restarts"], 3);
  EXPECT_THAT(status().out, HasSubstr("3 restarts\n"));
  claim(9);  // a home has had 7 and 8
  state(RunPhase::running, 90, 90, 0, {}, 9);
  EXPECT_EQ(report()["restarts"], 4);
}

TEST_F(Status, TellsAStalledStepFromADeadProcess) {
  claim(1);
  state(RunPhase::running, 100, -1);
  ledger(began(3600).progress(3590, 100));
  RunProgress told = at_step(100);
  told.still_ms = 14 * 60'000;
  progress(told);
  EXPECT_EQ(report()["verdict"], "healthy") << "15 min are allowed";
  told.still_ms = 16 * 60'000;
  progress(told);
  Json json = report();
  EXPECT_EQ(json["verdict"], "stalled");
  EXPECT_EQ(json["exit_code"], 1);
  EXPECT_EQ(report({"--max-age", "1h"})["verdict"], "healthy");
  claim_of_the_dead(1);
  json = report();
  EXPECT_EQ(json["verdict"], "dead");
  EXPECT_EQ(json["exit_code"], 1);
  EXPECT_THAT(json["reason"].get<std::string>(), HasSubstr("process 999999999 is gone"));
}

TEST_F(Status, EvaluationsPausesAndTheLastSaveNeedNoNewStep) {
  claim(1);
  state(RunPhase::running, 100, 100);
  ledger(began(7200));
  for (const TrainingPhase phase :
       {TrainingPhase::evaluating, TrainingPhase::pausing, TrainingPhase::saving}) {
    RunProgress told = at_step(100);
    told.phase = phase;
    told.still_ms = 3'600'000;
    progress(told);
    const Json json = report();
    EXPECT_EQ(json["exit_code"], 0) << json;
    EXPECT_EQ(json["phase"], word_of(phase));
  }
}

TEST_F(Status, SilenceIsMeasuredByTheNewestSignOfLife) {
  claim_elsewhere(1);
  state(RunPhase::running, 100, 100, 0, {}, 1, 4000);
  ledger(began(5000).progress(1000, 100));
  progress(at_step(130), 20 * 60);
  Json json = report();
  EXPECT_EQ(json["verdict"], "silent");
  EXPECT_EQ(json["exit_code"], 1);
  EXPECT_EQ(json["process"], "unknown");
  EXPECT_EQ(report({"--max-age", "30min"})["exit_code"], 0);
  progress(at_step(130), 5);
  EXPECT_EQ(report()["exit_code"], 0);
}

TEST_F(Status, EndsHaveTheirCodes) {
  claim(1);
  ledger(began(3600).progress(3590, 100));
  const auto expect = [&](RunPhase phase, int code, int expected, const std::string& verdict) {
    state(phase, 100, -1, code, "SIGTERM from process 1");
    const Json json = report();
    EXPECT_EQ(json["exit_code"], expected) << json;
    EXPECT_EQ(json["verdict"], verdict);
  };
  expect(RunPhase::complete, 0, 0, "complete");
  expect(RunPhase::interrupted, 75, 75, "interrupted");
  expect(RunPhase::interrupted, 12, 75, "interrupted");  // --exit-code-interrupted 12
  expect(RunPhase::failed, 74, 1, "failed");
  expect(RunPhase::failed, 78, 78, "refused");
  expect(RunPhase::superseded, 76, 1, "superseded");
}

// The volume refused the last state, or its bytes are old; the ledger has the end.
TEST_F(Status, BelievesTheEndThatOnlyTheLedgerTells) {
  claim(1);
  state(RunPhase::running, 100, -1);
  ledger(began(3600).progress(3500, 100).end(3590, "interrupted", 75, 130));
  const Json json = report();
  EXPECT_EQ(json["exit_code"], 75);
  EXPECT_EQ(json["step"], 130);
}

TEST_F(Status, SaysWhatTheNextStartWouldRefuse) {
  claim(1);
  state(RunPhase::interrupted, 100, 100, 75);
  std::ofstream(run_ / "step-000000000100-a0001.h5") << std::string(8192, 'x');
  const Json json = report();
  EXPECT_EQ(json["verdict"], "refused");
  EXPECT_EQ(json["exit_code"], 78);
  EXPECT_THAT(json["reason"].get<std::string>(), HasSubstr("no checkpoint verifies"));
  state(RunPhase::complete, 100, 100, 0);
  EXPECT_EQ(report()["exit_code"], 0) << "a complete run needs no next start";
}

TEST_F(Status, WhereNobodyTrainedOrOnlyBegan) {
  EXPECT_EQ(report()["verdict"], "untrained");
  EXPECT_EQ(report()["exit_code"], 1);
  claim(1);
  Json json = report();
  EXPECT_EQ(json["phase"], "starting");
  EXPECT_EQ(json["exit_code"], 0);
  claim_of_the_dead(1);
  EXPECT_EQ(report()["verdict"], "dead");
  claim_elsewhere(1);
  EXPECT_EQ(report()["exit_code"], 0) << "nobody knows since when";
}

// A directory as an earlier version left it: no progress file, no time in the claim.
TEST_F(Status, ReadsRunsOfEarlierVersions) {
  claim_elsewhere(1);
  state(RunPhase::running, 90, 90, 0, {}, 1, 60);
  ledger(began(600).commit(500, 90, 499).progress(590, 128));
  const Ended ended = status();
  EXPECT_EQ(ended.exit_code, 0) << ended.out;
  EXPECT_THAT(ended.out, HasSubstr("step       128\n"));
  EXPECT_THAT(ended.out, HasSubstr("durable    step 90"));
  EXPECT_THAT(ended.out, Not(HasSubstr("loss")));
  const Json json = report();
  EXPECT_EQ(json["step"], 128);
  EXPECT_TRUE(json["loss"].is_null());
  state(RunPhase::running, 90, 90, 0, {}, 1, 3500);
  ledger(began(4000).commit(500, 90, 499).progress(1000, 128));
  EXPECT_EQ(report()["verdict"], "silent");
}

TEST_F(Status, ShowsNoticesThatStandAndBlindSources) {
  claim(1);
  state(RunPhase::running, 100, 100);
  LedgerText text = began(300);
  text.line("source", 20,
            R"("name":"ec2","polls":90,"failures":30,"blind_ms":90000,"blind_now_ms":90000,"why":"403")");
  text.line("notice", 280, R"("source":"ec2","kind":"deadline","left_ms":119000,"text":"terminate")");
  text.line("notice", 285, R"("source":"file","kind":"deadline","left_ms":60000,"text":"drain")");
  text.line("notice", 286, R"("source":"file","kind":"withdrawn","text":"gone")");
  ledger(text);
  progress(at_step(100));
  const Json json = report();
  ASSERT_EQ(json["notices"].size(), 1u) << json["notices"];
  EXPECT_EQ(json["notices"][0]["source"], "ec2");
  EXPECT_NEAR(json["notices"][0]["left_s"].get<double>(), 99, 30);
  EXPECT_EQ(json["blind"][0]["source"], "ec2");
  EXPECT_THAT(status().out, HasSubstr("notice     ec2: terminate, "));
}

TEST_F(Status, UnsavedWorkHasALimitOfItsOwn) {
  claim(1);
  state(RunPhase::running, 100, 100);
  ledger(began(300));
  RunProgress told = at_step(240);
  told.risk_ms = 20 * 60'000;
  told.failure = "save of step 200 failed: no space";
  progress(told);
  EXPECT_EQ(report()["exit_code"], 0) << "a full disk is no reason to kill a training";
  const Json json = report({"--max-unsaved", "10min"});
  EXPECT_EQ(json["verdict"], "unsaved");
  EXPECT_EQ(json["exit_code"], 1);
  EXPECT_THAT(status().out, HasSubstr("no space"));
}

TEST_F(Status, SavesThatFailAreAReasonToLookAfterThreeIntervals) {
  claim(1);
  state(RunPhase::running, 100, 100);
  ledger(began(300));
  RunProgress told = at_step(240);
  told.save_interval_ms = 5 * 60'000;
  told.risk_ms = 20 * 60'000;
  progress(told);
  EXPECT_EQ(report()["verdict"], "healthy") << "a slow volume: no save has failed";
  told.failure = "save of step 200 failed: no space";
  told.risk_ms = 14 * 60'000;
  progress(told);
  EXPECT_EQ(report()["verdict"], "healthy");
  told.risk_ms = 16 * 60'000;
  progress(told);
  const Json json = report();
  EXPECT_EQ(json["verdict"], "unsaved");
  EXPECT_EQ(json["exit_code"], 1);
  EXPECT_EQ(json["saves"]["interval_s"], 300);
  EXPECT_THAT(json["reason"], HasSubstr("no space"));
  EXPECT_EQ(report({"--max-unsaved", "0s"})["exit_code"], 0) << "for a probe that would end the training";
  EXPECT_EQ(report({"--max-unsaved", "1h"})["exit_code"], 0);
}

TEST_F(Status, NonsenseIsSaidInOneLine) {
  EXPECT_EQ(status({"--max-age", "soon"}).exit_code, 64);
  EXPECT_EQ(status({"--color", "blue"}).exit_code, 64);
  claim(1);
  std::ofstream(run_ / "attempts" / state_name(1)) << "\x01[[{";
  std::ofstream(run_ / "attempts" / progress_name(1)) << "\x01[[{";
  std::ofstream(run_ / ledger_name(1)) << "\x01[[{\n{}\n";
  EXPECT_EQ(report()["phase"], "starting");
  fs::remove_all(run_);
  const Json json = report();
  EXPECT_EQ(json["exit_code"], 2);
  EXPECT_EQ(json["verdict"], "unreadable");
}

TEST_F(Status, ColorsOnlyWhereTheyAreWanted) {
  claim(1);
  EXPECT_THAT(status().out, Not(HasSubstr("\x1b")));
  EXPECT_THAT(status({"--color", "always"}, {{"NO_COLOR", "1"}}).out, HasSubstr("\x1b[32mstarting"));
  EXPECT_THAT(status({"--json", "--color", "always"}).out, Not(HasSubstr("\x1b")));
}

TEST_F(Status, WatchPrintsPlainLinesAndEndsWithTheRun) {
  claim(1);
  state(RunPhase::running, 100, 100);
  ledger(began(300));
  progress(at_step(100));
  Subprocess watching({HOLDFAST_BIN_DIR "/holdfast", "status", run_.string(), "--watch"});
  ASSERT_TRUE(watching.wait_until([&] { return watching.out().find('\n') != std::string::npos; }));
  EXPECT_THAT(watching.out(), HasSubstr("Z training, step 100 of 50,000 ("));
  state(RunPhase::complete, 120, 120);
  const Ended ended = watching.wait();
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_THAT(ended.last_line(), HasSubstr("complete, step 120"));
  EXPECT_THAT(ended.out, Not(HasSubstr("\x1b")));
}

// On a terminal it overwrites: it never clears the screen before it draws.
TEST_F(Status, WatchRedrawsATerminalInPlace) {
  claim(1);
  state(RunPhase::running, 100, 100);
  ledger(began(300));
  progress(at_step(100));
  int master = -1;
  winsize size{.ws_row = 24, .ws_col = 60, .ws_xpixel = 0, .ws_ypixel = 0};
  const pid_t child = forkpty(&master, nullptr, nullptr, &size);
  ASSERT_GE(child, 0);
  if (child == 0) {
    const std::string program = HOLDFAST_BIN_DIR "/holdfast";
    execl(program.c_str(), "holdfast", "status", run_.c_str(), "--watch", nullptr);
    _exit(127);
  }
  fcntl(master, F_SETFL, O_NONBLOCK);
  std::string shown;
  const auto read_more = [&] {
    char piece[4096];
    for (ssize_t got = 0; (got = read(master, piece, sizeof piece)) > 0;) shown.append(piece, got);
  };
  EXPECT_TRUE(soon([&] { return read_more(), shown.find("\x1b[J") != shown.rfind("\x1b[J"); })) << shown;
  kill(child, SIGINT);
  int status = 0;
  waitpid(child, &status, 0);
  close(master);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_THAT(shown, Not(HasSubstr("\x1b[2J")));
  EXPECT_THAT(shown, HasSubstr("F" + run_.string())) << "back to the first line";
  const std::string first = shown.substr(0, shown.find("\x1b[J"));
  for (const std::string& line : lines_of(first))
    EXPECT_LT(line.size(), 60u + 30) << "cut to the width: " << line;
}

// The mount of tests/cli/hung_mount_test.cc: nobody serves it.
TEST_F(Status, AVolumeThatHangsCostsTwoSeconds) {
  const fs::path hung = folder_.path() / "hung";
  fs::create_directory(hung);
  const auto start = [&](const std::vector<std::string>& command) {
    const int device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    const std::string options = "fd=" + std::to_string(device) + ",rootmode=40000,user_id=0,group_id=0";
    Subprocess child(command, {}, [&] {
      if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
          mount("hung", hung.c_str(), "fuse", MS_NOSUID | MS_NODEV, options.c_str()) != 0) {
        _exit(99);
      }
    });
    Ended ended = child.wait(30s);
    close(device);
    return ended;
  };
  if (start({"/bin/true"}).exit_code == 99) GTEST_SKIP() << "nothing can be mounted here";
  const Ended ended = start({HOLDFAST_BIN_DIR "/holdfast", "status", (hung / "run").string(), "--json"});
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  const Json json = Json::parse(ended.out, nullptr, false);
  ASSERT_TRUE(json.is_object()) << ended.out;
  EXPECT_EQ(json["verdict"], "hangs");
  EXPECT_THAT(json["reason"].get<std::string>(), HasSubstr("has not answered for 2s"));
}

}}  // namespace holdfast::test
