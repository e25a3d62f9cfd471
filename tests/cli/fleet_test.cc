// `holdfast status --all` and `holdfast report --all`: the runs of a sweep in one table and on one page.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "holdfast/base/text.h"
#include "holdfast/store/claim.h"
#include "holdfast/store/names.h"
#include "holdfast/store/run_progress.h"
#include "holdfast/store/run_state.h"
#include "support/ledger_text.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;
using Json = nlohmann::json;

std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

class Fleet : public testing::Test {
 protected:
  Ended status(std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {HOLDFAST_BIN_DIR "/holdfast", "status", "--all", root_.string()});
    return Subprocess(std::move(more)).wait();
  }
  // The JSON and the screen agree on the exit code.
  Json report(std::vector<std::string> more = {}) const {
    const Ended screen = status(more);
    more.emplace_back("--json");
    const Ended ended = status(more);
    Json json = Json::parse(ended.out, nullptr, false);
    EXPECT_TRUE(json.is_object()) << ended.out << ended.err;
    if (!json.is_object()) return {};
    EXPECT_EQ(json.value("exit_code", -1), ended.exit_code);
    EXPECT_EQ(ended.exit_code, screen.exit_code) << screen.out;
    return json;
  }
  static std::vector<std::string> names_in(const Json& report) {
    std::vector<std::string> names;
    for (const Json& row : report.at("runs")) names.push_back(row.at("name"));
    return names;
  }

  // A run whose attempts each recorded one value of a metric; the last one ended so, or still trains.
  void run(const std::string& name, RunPhase phase, std::int64_t step, const std::string& metric,
           const std::vector<double>& values, int code = 0) const {
    const fs::path directory = root_ / name;
    fs::create_directories(directory / kAttemptsDirectory);
    const auto attempts = static_cast<int>(values.size());
    for (int attempt = 1; attempt <= attempts; ++attempt) {
      const int from = static_cast<int>(step) * (attempt - 1) / attempts;
      const int to = static_cast<int>(step) * attempt / attempts;
      LedgerText ledger(attempt, from, attempt - 1, static_cast<double>(now_ms()) / 1e3 - 100, 10, "b");
      ledger.line("metric", 50,
                  R"("step":)" + std::to_string(to) + R"(,"name":")" + metric + R"(","value":")" +
                      std::to_string(values[static_cast<std::size_t>(attempt - 1)]) + '"');
      const bool last = attempt == attempts;
      if (!last || phase != RunPhase::running) ledger.commit(55, to, 50);
      ledger.progress(60, to);
      if (!last || phase != RunPhase::running) {
        ledger.end(70, last ? word_of(phase) : "interrupted", last ? code : 75, to);
      }
      std::ofstream(directory / ledger_name(attempt)) << ledger.text();
      std::ofstream(directory / kAttemptsDirectory / claim_name(attempt)) << claim_text("");
    }
    RunState state{.attempt = static_cast<std::uint64_t>(attempts),
                   .phase = phase,
                   .step = step,
                   .durable_step = phase == RunPhase::running ? step - 10 : -1,
                   .reason = phase == RunPhase::failed ? "the loss is nan" : ""};
    state.exit_code = code;
    state.time = format_utc(WallTime(std::chrono::milliseconds(now_ms())));
    std::ofstream(directory / kAttemptsDirectory / state_name(state.attempt)) << to_json(state);
    if (phase != RunPhase::running) return;
    RunProgress told;
    told.attempt = state.attempt;
    told.unix_ms = now_ms();
    told.step = step;
    told.last_step = 1000;
    told.loss = 0.5;
    told.steps_per_second = 2.5;
    told.durable_step = step - 10;
    told.risk_steps = 10;
    told.risk_ms = 60'000;
    std::ofstream(directory / kAttemptsDirectory / progress_name(state.attempt)) << to_record(told);
  }

  TemporaryFolder folder_;
  const fs::path root_ = folder_.path();
};

TEST_F(Fleet, ShowsARowARunAndAddsUp) {
  run("lr03", RunPhase::running, 400, "test_accuracy", {0.7, 0.9, 0.8});
  run("lr10", RunPhase::running, 200, "test_accuracy", {0.6});
  const Ended ended = status();
  EXPECT_EQ(ended.exit_code, 0) << ended.out << ended.err;
  const auto lines = lines_of(ended.out);
  ASSERT_EQ(lines.size(), 4u) << ended.out;
  EXPECT_THAT(
      lines[0],
      MatchesRegex("RUN +VERDICT +STEP +STEPS/S +LOSS +BEST test_accuracy +ATTEMPTS +AT RISK +LAST SIGN"));
  EXPECT_THAT(lines[1],
              MatchesRegex("lr03 +healthy +400 of 1,000 +2\\.5 +0\\.5 +0\\.9 +3 +1m [0-9]+s +[0-9]+s"))
      << lines[1];
  EXPECT_THAT(lines[2],
              MatchesRegex("lr10 +healthy +200 of 1,000 +2\\.5 +0\\.5 +0\\.6 +1 +1m [0-9]+s +[0-9]+s"))
      << lines[2];
  EXPECT_THAT(lines[3], MatchesRegex("2 runs +2 healthy +600 of 2,000 +5 +- +0\\.9 +4 +2m [0-9]+s +-"))
      << lines[3];
  const Json json = report();
  EXPECT_EQ(json["schema"], 1);
  EXPECT_EQ(json["verdict"], "healthy");
  EXPECT_EQ(json["runs"][0]["attempts"], 3);
  EXPECT_EQ(json["runs"][0]["best"]["test_accuracy"], 0.9);
  EXPECT_EQ(json["runs"][0]["risk"]["steps"], 10) << "each row is the run's own status";
  EXPECT_EQ(json["total"]["runs"], 2);
  EXPECT_EQ(json["total"]["verdicts"]["healthy"], 2);
  EXPECT_EQ(json["total"]["step"], 600);
  EXPECT_EQ(json["total"]["steps_per_second"], 5.0);
}

TEST_F(Fleet, TheExitCodeIsTheWorstVerdicts) {
  run("a", RunPhase::complete, 10, "f1", {0.5});
  EXPECT_EQ(report()["verdict"], "complete");
  run("b", RunPhase::interrupted, 10, "f1", {0.5}, 75);
  EXPECT_EQ(report()["exit_code"], 75);
  run("c", RunPhase::failed, 10, "f1", {0.5}, 1);
  EXPECT_EQ(report()["exit_code"], 1);
  EXPECT_THAT(status().out, HasSubstr("\nc: it ended with exit code 1: the loss is nan\n"));
  run("e", RunPhase::failed, 10, "f1", {0.5}, 78);
  EXPECT_EQ(report()["verdict"], "refused");
  run("d", RunPhase::complete, 10, "f1", {0.5});
  EXPECT_EQ(report()["exit_code"], 78);
  EXPECT_EQ(report()["total"]["verdicts"]["complete"], 2);
}

TEST_F(Fleet, SortsByTheBestOfAMetric) {
  run("a", RunPhase::complete, 10, "test_accuracy", {0.7});
  run("b", RunPhase::complete, 10, "test_accuracy", {0.9, 0.8});
  run("c", RunPhase::complete, 10, "test_loss", {0.3, 0.2});
  run("d", RunPhase::complete, 10, "test_loss", {0.1});
  EXPECT_THAT(names_in(report()), ElementsAre("a", "b", "c", "d"));
  EXPECT_THAT(names_in(report({"--sort", "test_accuracy"})), ElementsAre("b", "a", "c", "d"));
  EXPECT_THAT(names_in(report({"--sort", "test_loss"})), ElementsAre("d", "c", "a", "b"));
  const Json lowest = report({"--sort", "test_accuracy:min"});
  EXPECT_THAT(names_in(lowest), ElementsAre("a", "b", "c", "d"));
  EXPECT_EQ(lowest["runs"][1]["best"]["test_accuracy"], 0.8);
  EXPECT_THAT(status({"--sort", "f1"}).out, HasSubstr("not sorted: no run has recorded 'f1'"));
  const Ended wrong = status({"--sort", "f1:best"});
  EXPECT_EQ(wrong.exit_code, 64);
  EXPECT_THAT(wrong.err, HasSubstr("NAME:min or NAME:max"));
}

TEST_F(Fleet, LooksOnlyAtFoldersInWhichSomebodyTrained) {
  run("a", RunPhase::complete, 10, "f1", {0.5});
  fs::create_directory(root_ / "logs");
  fs::create_directory(root_ / ".snapshot");
  fs::create_directory(root_ / "lost+found");
  write_text(root_ / "a.log", "text");
  EXPECT_THAT(names_in(report()), ElementsAre("a"));
  fs::remove_all(root_ / "a");
  const Ended none = status();
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_THAT(none.out, HasSubstr("no folder there holds a run"));
  fs::remove_all(root_);
  const Ended gone = status();
  EXPECT_EQ(gone.exit_code, 2);
  EXPECT_THAT(gone.out, HasSubstr(root_.string()));
}

TEST_F(Fleet, ARunThatCannotBeReadIsARow) {
  run("a", RunPhase::complete, 10, "f1", {0.5});
  fs::create_directory(root_ / "b");
  write_text(root_ / "b" / kAttemptsDirectory, "no directory");
  const Json json = report();
  EXPECT_EQ(json["exit_code"], 2);
  EXPECT_EQ(json["runs"][1]["verdict"], "unreadable");
  EXPECT_EQ(json["runs"][0]["verdict"], "complete");
}

TEST_F(Fleet, WatchEndsWhenNoRunCanChange) {
  run("a", RunPhase::complete, 10, "f1", {0.5});
  run("b", RunPhase::complete, 20, "f1", {0.5});
  const Ended ended = status({"--watch"});
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_EQ(ended.out, "2 runs: 2 complete; step 30 of 30; 0 steps/s\n");
}

TEST_F(Fleet, ThePageHasTheTableAndOneCurveARun) {
  for (int i = 0; i < 9; ++i)
    run("lr" + std::to_string(i), RunPhase::complete, 30, "test_accuracy", {0.5, 0.6, 0.7});
  run("<b>", RunPhase::complete, 30, "a<b", {0.5});
  const std::string page = (root_ / "sweep.html").string();
  const std::vector<std::string> command{HOLDFAST_BIN_DIR "/holdfast", "report", "--all", root_.string(),
                                         "--html"};
  const auto report_to = [&](const std::string& file) {
    auto words = command;
    words.push_back(file);
    return Subprocess(words).wait();
  };
  const Ended ended = report_to(page);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("10 runs: 10 complete"));
  const std::string text = read_text(page);
  EXPECT_THAT(text,
              AllOf(HasSubstr("<th>BEST test_accuracy</th>"), HasSubstr("<td class=\"left\">10 runs</td>"),
                    HasSubstr("<h2>test_accuracy</h2>"), HasSubstr("&lt;b&gt;"), Not(HasSubstr("<b>"))));
  for (int i = 0; i < 9; ++i) EXPECT_THAT(text, HasSubstr("<title>lr" + std::to_string(i) + "</title>"));
  EXPECT_THAT(text, HasSubstr("class=\"first dashed\"")) << "the seventh curve differs from the first";
  EXPECT_EQ(report_to((root_ / "lr0" / "page.html").string()).exit_code, 64) << "a run's files are its own";
  EXPECT_EQ(Subprocess({HOLDFAST_BIN_DIR "/holdfast", "report", "--all", root_.string()}).wait().exit_code,
            64);
}

TEST_F(Fleet, SortNeedsAll) {
  run("a", RunPhase::complete, 10, "f1", {0.5});
  const Ended ended =
      Subprocess({HOLDFAST_BIN_DIR "/holdfast", "status", (root_ / "a").string(), "--sort", "f1"}).wait();
  EXPECT_EQ(ended.exit_code, 64);
}

}}  // namespace holdfast::test
