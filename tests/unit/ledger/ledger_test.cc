#include "holdfast/ledger/ledger.h"

#include <atomic>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "holdfast/base/system/machine.h"
#include "holdfast/io/line_file.h"
#include "support/captured_log.h"
#include "support/quiet_call.h"
#include "support/run_disk.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using Json = nlohmann::json;

std::vector<Json> drained(Ledger& ledger) {
  std::vector<Json> lines;
  ledger.drain([&](const std::string& line) { lines.push_back(Json::parse(line)); });
  return lines;
}

TEST(LedgerLine, IsAJsonObjectWhateverTheText) {
  const std::string text = "a \"quote\", a \\, a\nnewline, \x01, \x7f, wörd, \xff, \xe2\x82";
  LedgerLine line("notice");
  line.text("text", text).number("step", std::int64_t{-5}).flag("hibernates", true);
  const Json json = Json::parse(line.done());
  EXPECT_EQ(json["event"], "notice");
  EXPECT_EQ(json["text"], "a \"quote\", a \\, a\nnewline, \x01, \x7f, wörd, ?, ??");
  EXPECT_EQ(json["step"], -5);
  EXPECT_EQ(json["hibernates"], true);
}

TEST(LedgerLine, TimesAreMilliseconds) {
  LedgerLine line("x");
  line.milliseconds("a", 1234567us).milliseconds("b", -1500us).milliseconds("c", Duration::min());
  const Json json = Json::parse(line.done());
  EXPECT_EQ(json["a"], 1234.567);
  EXPECT_EQ(json["b"], -1.5);
}

TEST(LedgerLine, IsCutAndStaysAnObject) {
  for (std::size_t length = 900; length < 1100; ++length) {
    LedgerLine line("notice");
    line.text("text", std::string(length, '"'))
        .number("step", std::int64_t{7})
        .text("more", "ä")
        .flag("f", true);
    const std::string_view done = line.done();
    ASSERT_LE(done.size(), LedgerLine::kLongest);
    ASSERT_TRUE(Json::accept(done)) << done;
    ASSERT_EQ(line.done(), done);
  }
}

TEST(Ledger, EveryEventHasBothTimes) {
  FakeClock clock;
  Ledger ledger(clock);
  clock.advance(5s);
  Notice notice{
      .source = "ec2", .kind = NoticeKind::deadline, .deadline = clock.now() + 118s, .text = "terminate"};
  notice.seen = clock.now() - 2s;
  ledger.notice(notice);
  ledger.pause(41, "the last commit stands");
  ledger.go_on(41, "withdrawn");
  ledger.stall("deaf", 31s);
  const auto lines = drained(ledger);
  ASSERT_EQ(lines.size(), 4U);
  const std::int64_t now =
      std::chrono::duration_cast<std::chrono::milliseconds>(clock.wall_now().time_since_epoch()).count();
  EXPECT_EQ(lines[0]["event"], "notice");
  EXPECT_EQ(lines[0]["up_ms"], 3000) << "when it was first seen";
  EXPECT_EQ(lines[0]["t"], now - 2000);
  EXPECT_EQ(lines[0]["left_ms"], 120'000);
  EXPECT_EQ(lines[0]["kind"], "deadline");
  EXPECT_FALSE(lines[0].contains("hibernates"));
  EXPECT_EQ(lines[1]["event"], "pause");
  EXPECT_EQ(lines[1]["up_ms"], 5000);
  EXPECT_EQ(lines[2]["event"], "go on");
  EXPECT_EQ(lines[3]["ms"], 31'000);
  EXPECT_TRUE(drained(ledger).empty());
}

TEST(Ledger, AFullOneDropsCountsAndSaysSo) {
  FakeClock clock;
  Ledger ledger(clock);
  for (std::size_t i = 0; i < Ledger::kCapacity + 10; ++i) ledger.go_on(static_cast<std::int64_t>(i), "");
  EXPECT_EQ(ledger.dropped(), 10);
  CapturedLog log;
  auto lines = drained(ledger);
  ASSERT_EQ(lines.size(), Ledger::kCapacity + 1);
  for (std::size_t i = 0; i < Ledger::kCapacity; ++i) EXPECT_EQ(lines[i]["step"], i);
  EXPECT_EQ(lines.back()["event"], "lost");
  EXPECT_EQ(lines.back()["count"], 10);
  EXPECT_THAT(log.text(), HasSubstr("incomplete"));
  ledger.go_on(1, "");
  EXPECT_EQ(drained(ledger).size(), 1U) << "there is room again, and nothing is said twice";
}

TEST(Ledger, WhatCannotBeWrittenStays) {
  FakeClock clock;
  Ledger ledger(clock);
  ledger.go_on(1, "");
  ledger.go_on(2, "");
  EXPECT_THROW(ledger.drain([](const std::string&) { throw std::bad_alloc(); }), std::bad_alloc);
  EXPECT_EQ(drained(ledger).size(), 2U);
}

TEST(Ledger, ManyWriteAtOnce) {
  constexpr int kThreads = 3;
  constexpr int kEach = 2000;
  FakeClock clock;
  Ledger ledger(clock);
  std::atomic<int> running{kThreads};
  std::vector<std::thread> writers;
  for (int t = 0; t < kThreads; ++t) {
    writers.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) ledger.go_on(t * kEach + i, "");
      --running;
    });
  }
  CapturedLog log;
  std::vector<std::int64_t> steps;
  std::int64_t lost = 0;
  bool last = false;
  while (!last) {
    last = running == 0;
    for (const Json& line : drained(ledger)) {
      if (line["event"] == "lost") {
        lost += line["count"].get<std::int64_t>();
      } else {
        steps.push_back(line["step"]);
      }
    }
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(static_cast<std::int64_t>(steps.size()) + lost, kThreads * kEach);
  EXPECT_EQ(std::set<std::int64_t>(steps.begin(), steps.end()).size(), steps.size()) << "none twice";
  std::map<std::int64_t, std::int64_t> newest;  // by thread
  for (const std::int64_t step : steps) {
    EXPECT_GE(step, newest[step / kEach]) << "each thread's in its order";
    newest[step / kEach] = step;
  }
}

TEST(Ledger, ProgressIsSampledSparsely) {
  FakeClock clock;
  Ledger ledger(clock);
  RunFigures figures;
  figures.blocked = 250ms;
  Ledger::Sample sample{.step = 12, .figures = figures, .sources = {{"ec2", {.polls = 9, .failures = 1}}}};
  ledger.observe([&] { return sample; });
  EXPECT_TRUE(drained(ledger).empty());
  clock.advance(Ledger::kProgressInterval);
  auto lines = drained(ledger);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0]["event"], "progress");
  EXPECT_EQ(lines[0]["step"], 12);
  EXPECT_EQ(lines[0]["waited_ms"], 250);
  EXPECT_FALSE(lines[0].contains("phase"));
  EXPECT_EQ(lines[1]["event"], "source") << "that it is there";
  EXPECT_TRUE(drained(ledger).empty());
  sample.phase = "evaluation";
  clock.advance(Ledger::kProgressInterval);
  EXPECT_EQ(drained(ledger).at(0)["phase"], "evaluation") << "its step need not move";

  sample.sources[0].figures.blind = 6s;
  clock.advance(Ledger::kProgressInterval);
  lines = drained(ledger);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[1]["event"], "source");
  EXPECT_EQ(lines[1]["blind_ms"], 6000);
  clock.advance(Ledger::kProgressInterval);
  EXPECT_EQ(drained(ledger).size(), 1U) << "no blinder than before";
}

TEST(Ledger, BlindnessIsToldWhileItLastsAndThatItIsOver) {
  FakeClock clock;
  Ledger ledger(clock);
  Ledger::Sample sample{.figures = {}, .sources = {{"ec2", {.polls = 9}}}};
  ledger.observe([&] { return sample; });
  const auto next = [&] {
    clock.advance(Ledger::kProgressInterval);
    return drained(ledger);
  };
  EXPECT_FALSE(next().at(1).contains("blind_now_ms"));
  sample.sources[0].figures.blind = sample.sources[0].figures.blind_now = 8s;
  sample.sources[0].figures.why = "status 403";
  const auto blind = next();
  EXPECT_EQ(blind.at(1)["blind_now_ms"], 8000);
  EXPECT_EQ(blind.at(1)["why"], "status 403");
  sample.sources[0].figures.blind = 9s;
  sample.sources[0].figures.blind_now = 0s;
  const auto sees = next();
  ASSERT_EQ(sees.size(), 2U);
  EXPECT_EQ(sees[1]["blind_ms"], 9000);
  EXPECT_FALSE(sees[1].contains("blind_now_ms"));
  EXPECT_EQ(next().size(), 1U);
}

TEST(Ledger, TheEndComesLast) {
  FakeClock clock;
  Ledger ledger(clock);
  ledger.observe([] {
    return Ledger::Sample{.step = 5, .figures = {}, .sources = {{"signal", {}}, {"ec2", {.polls = 9}}}};
  });
  ledger.pause(5, "");
  std::vector<Json> lines;
  ledger.end(
      {.phase = RunPhase::interrupted, .exit_code = 75, .step = 5, .durable_step = 4, .reason = "SIGTERM"},
      [&](const std::string& line) { lines.push_back(Json::parse(line)); });
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0]["event"], "pause");
  EXPECT_EQ(lines[1]["event"], "source");
  EXPECT_EQ(lines[2]["event"], "end");
  EXPECT_EQ(lines[2]["phase"], "interrupted");
  EXPECT_EQ(lines[2]["code"], 75);
  EXPECT_EQ(lines[2]["durable_step"], 4);
  EXPECT_EQ(lines[2]["reason"], "SIGTERM");
}

// The training thread notes a pause; it must not meet the kernel for that, nor an allocator.
TEST(Ledger, NotingNeverEntersTheKernel) {
  if (!KernelEntries::prepare()) GTEST_SKIP() << "system calls cannot be caught on this machine";
  Ledger ledger(Clock::real());
  const std::int64_t before = KernelEntries::count();
  KernelEntries::watch();
  for (int i = 0; i < 200; ++i) ledger.pause(i, "why");
  KernelEntries::leave();
  EXPECT_EQ(KernelEntries::count() - before, 0);
  EXPECT_EQ(drained(ledger).size(), 200U);
}

TEST(ProcessAge, GrowsWithTheProcess) {
  const auto age = process_age();
  ASSERT_TRUE(age);
  EXPECT_GE(*age, 0s);
  EXPECT_LT(*age, 24h);
  EXPECT_GE(*process_age(), *age);
  const auto program = program_age();
  EXPECT_LE(*program, *process_age());
}

}}  // namespace holdfast::test
