// `holdfast report`: where a run's time went.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "holdfast/base/system/machine.h"
#include "holdfast/checkpoint/checkpointer.h"
#include "support/ledger_text.h"
#include "support/memory_source.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using Json = nlohmann::json;

class Report : public testing::Test {
 protected:
  Report() { fs::create_directory(directory()); }
  std::string directory() const { return folder_.path() / "run"; }
  std::string path(const std::string& name) const { return folder_.path() / name; }
  Ended run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {HOLDFAST_BIN_DIR "/holdfast", "report"});
    return Subprocess(std::move(arguments)).wait();
  }
  void put(std::uint64_t attempt, const std::string& text) const {
    std::ofstream(fs::path(directory()) / ledger_name(attempt)) << text;
  }
  // One that vanishes without a notice, one that is told and leaves, one that lives.
  void three_lives() const {
    put(1, LedgerText(1, 0, 0, 1'000'000, 10, "a").commit(75, 60, 70).progress(100, 90).text());
    LedgerText second(2, 60, 1, 1'001'000, 20, "b");
    second.notice(100, "deadline", 120).commit(124, 160, 120).end(130, "interrupted", 75, 160, 4);
    put(2, second.text());
    put(3, LedgerText(3, 160, 2, 1'002'000, 20, "c").progress(60, 200).text());
  }
  static std::string content(const std::string& file) {
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    return text.str();
  }

  TemporaryFolder folder_;
};

TEST_F(Report, HelpHasAnExample) {
  const Ended ended = run({"--help"});
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_THAT(ended.out, HasSubstr("Example:\n  holdfast report "));
}

TEST_F(Report, OfAnEmptyDirectorySaysSo) {
  const Ended ended = run({directory(), "--svg", path("empty.svg")});
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_THAT(ended.out, StartsWith("no attempt has trained in "));
  EXPECT_THAT(content(path("empty.svg")), HasSubstr("No attempt has begun to train."));
  EXPECT_EQ(Json::parse(run({directory(), "--json"}).out)["goodput"], 0);
}

TEST_F(Report, WhatCannotBeReadIsSaid) {
  EXPECT_EQ(run({path("nothing")}).exit_code, 2);
  EXPECT_EQ(run({}).exit_code, 64);
  put(1, "");
  fs::create_directory(directory() + "/attempts");
  write_text(directory() + "/step.h5", "a checkpoint");
  fs::create_symlink(directory() + "/step.h5", path("link.svg"));
  for (const std::string& file :
       {directory() + "/x.svg", directory() + "/attempts/x.svg", path("link.svg")}) {
    const Ended inside = run({directory() + "/", "--svg", file});
    EXPECT_EQ(inside.exit_code, 64) << file;
    EXPECT_THAT(inside.err, HasSubstr("write it elsewhere"));
  }
  EXPECT_FALSE(fs::exists(directory() + "/x.svg"));
  EXPECT_EQ(content(directory() + "/step.h5"), "a checkpoint");
  EXPECT_EQ(run({directory(), "--svg", directory() + ".svg"}).exit_code, 0)
      << "the same letters, another file";
  const Ended nowhere = run({directory(), "--svg", path("no/folder/x.svg")});
  EXPECT_EQ(nowhere.exit_code, 2);
  EXPECT_THAT(nowhere.err, HasSubstr("x.svg"));
}

TEST_F(Report, TellsWhereTheTimeWent) {
  three_lives();
  const Ended ended = run({directory()});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(ended.err, "");
  EXPECT_THAT(ended.out, HasSubstr("3 lives"));
  EXPECT_THAT(ended.out, HasSubstr("2 interruptions, 1 without a notice (50.0 % missed); lead time 2m 00s"));
  EXPECT_THAT(ended.out, HasSubstr("vanished"));
  EXPECT_THAT(ended.out, HasSubstr("interrupted (r)"));
  EXPECT_THAT(ended.out, HasSubstr("at risk, at the last record: 40 steps, 40s"));

  const Json json = Json::parse(run({directory(), "--json"}).out);
  EXPECT_EQ(json["interruptions"], 2);
  EXPECT_EQ(json["missed"], 1);
  EXPECT_EQ(json["time"]["up_s"], 100 + 130 + 60);
  EXPECT_EQ(json["time"]["kept_s"], 60 + 100);
  EXPECT_EQ(json["attempts"].size(), 3U);
  EXPECT_EQ(json["attempts"][0]["kept_step"], 60);
  EXPECT_EQ(json["attempts"][1]["lead_s"], 120);
  EXPECT_TRUE(json["attempts"][2]["lead_s"].is_null());
}

TEST_F(Report, DrawsEachAttemptOnceAsSvg) {
  three_lives();
  put(4, LedgerText(4, 160, 2, 1'003'000, 20, "d").notice(30, "deadline", 60).raw("<&\n").text());
  EXPECT_EQ(run({directory(), "--svg", path("x.svg")}).exit_code, 0);
  const std::string svg = content(path("x.svg"));
  EXPECT_THAT(svg, StartsWith("<svg "));
  EXPECT_THAT(svg, testing::EndsWith("</svg>\n"));
  for (int attempt = 1; attempt <= 4; ++attempt) {
    EXPECT_THAT(svg, HasSubstr(">attempt " + std::to_string(attempt) + "<"));
  }
  EXPECT_THAT(svg, HasSubstr("<title>ec2: deadline terminate</title>"));
}

TEST_F(Report, TheUmaskDecidesWhoReadsAPageAndAReplacedOneStaysAsItWas) {
  const auto mode = [&] { return static_cast<unsigned>(fs::status(path("x.html")).permissions()); };
  umask(027);
  EXPECT_EQ(run({directory(), "--html", path("x.html")}).exit_code, 0);
  umask(022);
  EXPECT_EQ(mode(), 0640u);
  fs::permissions(path("x.html"), fs::perms(0664));
  EXPECT_EQ(run({directory(), "--html", path("x.html")}).exit_code, 0);
  EXPECT_EQ(mode(), 0664u);
}

// "--svg /dev/stdout" must not put a file in that device's place.
TEST_F(Report, ALinkStaysALink) {
  std::ofstream(path("real.svg")) << "older";
  fs::create_symlink("real.svg", path("link.svg"));
  EXPECT_EQ(run({directory(), "--svg", path("link.svg")}).exit_code, 0);
  EXPECT_TRUE(fs::is_symlink(path("link.svg")));
  EXPECT_THAT(content(path("real.svg")), StartsWith("<svg "));
}

TEST_F(Report, OnePageHasCurvesTimesAndNotices) {
  three_lives();
  LedgerText fourth(4, 160, 2, 1'003'000, 20, "d");
  fourth.notice(30, "deadline", 60);
  fourth.line("metric", 40, R"("step":170,"name":"test_accuracy","value":"0.75")");
  fourth.line("metric", 41, R"("step":170,"name":"<b>","value":"3")");
  fourth
      .raw(R"({"event":"losses","from":161,"bits":"3ff00000000000003fe0000000000000"})"
           "\n")
      .progress(60, 200);
  put(4, fourth.text());
  const Ended ended = run({directory(), "--html", path("x.html")});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  const std::string page = content(path("x.html"));
  EXPECT_THAT(page, StartsWith("<!DOCTYPE html>"));
  EXPECT_THAT(page, testing::EndsWith("</html>\n"));
  for (const char* part :
       {"<h2>Loss</h2>", "<h2>Accuracy</h2>", "<h2>Throughput</h2>", "<h2>Saves and their price</h2>",
        "<h2>Attempts over time</h2>", "<h2>Attempts</h2>", "<h2>Notices, newest first</h2>",
        ">training loss<", ">test_accuracy<", ">&lt;b&gt;<", ">attempt 4<", "76 %",
        "prefers-color-scheme:dark"}) {
    EXPECT_THAT(page, HasSubstr(part));
  }
  for (const char* part : {"<script", "<b>t", "url(", "<link", "@import", "src="})
    EXPECT_THAT(page, Not(HasSubstr(part)));
  // The only address is the name space of SVG.
  for (std::size_t at = page.find("http"); at != std::string::npos; at = page.find("http", at + 1)) {
    EXPECT_EQ(page.substr(at, 26), "http://www.w3.org/2000/svg");
  }
}

TEST_F(Report, APageOfNothingAndOfOneStep) {
  EXPECT_EQ(run({directory(), "--html", path("x.html")}).exit_code, 0);
  EXPECT_THAT(content(path("x.html")), HasSubstr("No attempt has begun to train."));
  put(1, LedgerText(1, 0, 0, 1'000'000, 10, "a").text());
  EXPECT_EQ(run({directory(), "--html", path("x.html")}).exit_code, 0);
  EXPECT_THAT(content(path("x.html")), HasSubstr("no values yet"));
  EXPECT_EQ(run({directory(), "--html", directory() + "/x.html"}).exit_code, 64)
      << "inside the run directory";
}

TEST_F(Report, APageOfAMillionStepsStaysSmall) {
  LedgerText text(1, 0, 0, 1'000'000, 10, "a");
  const std::string ones = "3ff0000000000000";
  const std::string spike = "4024000000000000";  // 10
  for (int from = 1; from <= 1'000'000; from += 1000) {
    std::string bits;
    for (int i = 0; i < 1000; ++i) bits += from == 500'001 && i == 7 ? spike : ones;
    text.raw(R"({"event":"losses","from":)" + std::to_string(from) + R"(,"bits":")" + bits + "\"}\n");
  }
  put(1, text.progress(100'000, 1'000'000).text());
  ASSERT_EQ(run({directory(), "--html", path("x.html")}).exit_code, 0);
  const std::string page = content(path("x.html"));
  EXPECT_LT(page.size(), 40'000U);
  EXPECT_THAT(page, HasSubstr(">10<")) << "the axis reaches the spike of a single step";
}

TEST_F(Report, HostileTextsSteerNeitherTerminalNorPicture) {
  LedgerText text(1, 0, 0, 1'000'000, 10, "a");
  text.line("notice", 20, R"("source":"<script>","kind":"deadline","text":"\u001b[2J\"&"))");
  text.line("end", 30, R"("phase":"failed","code":1,"step":1,"reason":"\u001b[31m\n</svg>")");
  put(1, text.text());
  put(2, std::string(100'000, '\0'));
  const Ended ended = run({directory(), "--svg", path("x.svg"), "--html", path("x.html")});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(content(path("x.html")), Not(testing::AnyOf(HasSubstr("<script>"), HasSubstr("\x1b"))));
  EXPECT_THAT(ended.out, Not(HasSubstr("\x1b")));
  const std::string svg = content(path("x.svg"));
  EXPECT_THAT(svg, Not(HasSubstr("\x1b")));
  EXPECT_THAT(svg, Not(HasSubstr("<script>")));
  EXPECT_EQ(svg.find("</svg>"), svg.size() - 7);
}

TEST_F(Report, OfARunOnTheDisk) {
  if (boot_id().empty()) GTEST_SKIP() << "this machine has no boot id: crashed and vanished look alike";
  const auto life = [&](int steps, bool finish) {
    MemorySource source;
    CheckpointerOptions options;
    options.directory = directory();
    options.notices.hear_signals = false;
    Checkpointer checkpointer(source, options);
    checkpointer.resume();
    for (int i = 1; i <= steps; ++i) {
      checkpointer.after_step(source.train());
      if (i == 4) checkpointer.save().wait();
    }
    if (finish) checkpointer.finish();
  };
  testing::internal::CaptureStderr();
  life(6, false);
  life(6, true);
  testing::internal::GetCapturedStderr();
  const Json json = Json::parse(run({directory(), "--json"}).out);
  ASSERT_EQ(json["attempts"].size(), 2U);
  EXPECT_EQ(json["skipped_lines"], 0);
  EXPECT_EQ(json["attempts"][0]["ending"], "crashed") << "the same machine";
  EXPECT_EQ(json["attempts"][0]["kept_step"], 4);
  EXPECT_EQ(json["attempts"][1]["ending"], "complete");
  EXPECT_EQ(json["attempts"][1]["kept_step"], 10);
  EXPECT_EQ(json["interruptions"], 0);
  EXPECT_GT(json["goodput"], 0);
}

}}  // namespace holdfast::test
