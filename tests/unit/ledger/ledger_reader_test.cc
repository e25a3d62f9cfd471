#include "holdfast/ledger/ledger_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "support/ledger_text.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using testing::IsEmpty;
using testing::SizeIs;

LedgerText whole() {
  LedgerText text(1, 100, 0, 1000, 10, "boot-a");
  text.progress(20, 110)
      .commit(33, 120, 30)
      .notice(40, "deadline", 100)
      .line("pause", 50, R"("step":130,"why":"w")");
  text.line("go on", 60, R"("step":130,"why":"w")").line("stall", 61, R"("ms":2000,"what":"deaf")");
  text.line("source", 61, R"("name":"ec2","polls":9,"failures":2,"blind_ms":7000)");
  return text.end(72, "interrupted", 75, 140, 2);
}

TEST(ReadLife, TellsWhatHappened) {
  const auto lives = lives_of({whole().text()});
  ASSERT_THAT(lives, SizeIs(1));
  const LedgerLife& life = lives[0];
  EXPECT_EQ(life.attempt, 1U);
  EXPECT_TRUE(life.started);
  EXPECT_EQ(life.start, WallTime(1000s));
  EXPECT_EQ(life.start_step, 100);
  EXPECT_EQ(life.startup, 10s);
  EXPECT_EQ(life.boot, "boot-a");
  ASSERT_THAT(life.commits, SizeIs(1));
  EXPECT_EQ(life.commits[0].step, 120);
  EXPECT_EQ(life.commits[0].boundary, 30s);
  EXPECT_EQ(life.durable_step, 120);
  ASSERT_THAT(life.notices, SizeIs(1));
  EXPECT_EQ(life.notices[0].left, 100s);
  ASSERT_THAT(life.pauses, SizeIs(1));
  EXPECT_EQ(life.pauses[0].to, 60s);
  ASSERT_THAT(life.stalls, SizeIs(1));
  EXPECT_EQ(life.sources.at("ec2").blind, 7s);
  ASSERT_TRUE(life.end);
  EXPECT_EQ(life.end->exit_code, 75);
  EXPECT_EQ(life.last_step, 140);
  EXPECT_EQ(life.length(), 72s);
  EXPECT_EQ(life.skipped_lines, 0);
}

TEST(ReadLife, WorkIsTimeWithoutStartUpWaitsAndPauses) {
  LedgerText text(1, 0, 0, 0, 10, "");
  text.progress(30, 20, 0)
      .progress(60, 40, 10)
      .line("pause", 60, R"("step":40)")
      .line("go on", 70, R"("step":40)");
  text.progress(80, 50, 10);
  const LedgerLife life = lives_of({text.text()}).at(0);
  EXPECT_EQ(life.work_until(0), 0s);
  EXPECT_EQ(life.work_until(10), 10s) << "halfway between two marks";
  EXPECT_EQ(life.work_until(20), 20s);
  EXPECT_EQ(life.work_until(40), 40s);
  EXPECT_EQ(life.work_until(50), 50s);
  EXPECT_EQ(life.work_until(1000), 50s);
}

TEST(ReadLife, TornForeignAndNonsensicalLinesAreSkipped) {
  LedgerText text(1, 0, 0, 0, 1, "");
  text.raw("\n{\n[]\n17\nnull\n\"x\"\n{}\n{\"event\":\"commit\"}\n");  // six: the empty line is none
  text.raw(R"({"event":"commit","up_ms":5000,"step":-1})"
           "\n");  // no step
  text.raw(R"({"event":"commit","up_ms":-5000,"step":1})"
           "\n");  // no time
  text.raw(R"({"event":"commit","up_ms":1e300,"step":1})"
           "\n");  // no time
  text.raw(R"({"event":"commit","up_ms":1e999,"step":1})"
           "\n");  // no number
  text.raw(R"({"event":"commit","up_ms":5000,"step":1.5})"
           "\n");  // no step
  text.raw(R"({"event":"commit","up_ms":5000,"step":99999999999999999999})"
           "\n");
  text.raw(R"({"event":"go on","up_ms":5000,"step":1})"
           "\n");  // of no pause
  text.raw(R"({"event":"start","up_ms":5000,"t":1,"step":1})"
           "\n");  // a second one
  const std::int64_t bad = 7 + 8;
  text.raw(R"({"event":"losses","from":1,"bits":"00"})"
           "\n");  // not for us
  text.raw(R"({"event":"of a later version","up_ms":1,"more":{"up_ms":[1,{}]}})"
           "\n");
  text.progress(6, 3).raw(R"({"event":"progress","up_ms":900000,"st)");  // torn
  const LedgerLife life = lives_of({text.text()}).at(0);
  EXPECT_EQ(life.skipped_lines, bad);
  EXPECT_THAT(life.commits, IsEmpty());
  EXPECT_EQ(life.last_step, 3);
  EXPECT_EQ(life.last_up, 6s);
}

// In nanoseconds they would not fit, nor would what is computed from them.
TEST(ReadLife, TimesFarAheadAreNonsense) {
  const auto life_with = [](const std::string& wall, const std::string& up) {
    return lives_of({R"({"event":"start","up_ms":)" + up + R"(,"t":)" + wall + R"(,"step":1})" + "\n"}).at(0);
  };
  EXPECT_TRUE(life_with("9000000000000", "1").started);
  EXPECT_FALSE(life_with("9000000000001", "1").started);
  EXPECT_FALSE(life_with("253402300799000", "1").started);
  EXPECT_FALSE(life_with("9223372036854775807", "1").started);
  EXPECT_TRUE(life_with("1", "31536000000").started);
  EXPECT_FALSE(life_with("1", "31622400001").started);
}

TEST(MachineLives, OfClocksThatJumpAreBounded) {
  std::vector<LedgerLife> lives;
  for (int i = 0; i < 8; ++i) {
    LedgerLife life;
    life.started = true;
    life.boot = "same";
    life.start = WallTime(i % 2 == 0 ? 0s : 9'000'000'000s);
    life.startup = 366 * 24h;
    lives.push_back(life);
  }
  const std::vector<MachineLife> machines = machine_lives(lives, "same");
  ASSERT_THAT(machines, SizeIs(1));
  EXPECT_EQ(machines[0].length, 100 * 366 * 24h);
}

TEST(ReadLife, ALineWithoutEndCostsNoMemory) {
  LedgerText text(1, 0, 0, 0, 1, "");
  text.raw(std::string(3 << 20, 'x') + "\n").progress(6, 3);
  text.raw(std::string(kLongestLedgerLine + 1, ' ') + "\n").progress(7, 4);
  const LedgerLife life = lives_of({text.text()}).at(0);
  EXPECT_EQ(life.skipped_lines, 2);
  EXPECT_EQ(life.last_step, 4);
}

TEST(ReadLife, OfALongLedgerTheMiddleIsNotRead) {
  LedgerText text(1, 0, 0, 0, 1, "");
  for (int i = 1; i <= 1000; ++i) text.progress(i + 1, i);
  MemoryFileSystem disk;
  disk.put("/ledger", text.text());
  const auto file = disk.open_file("/ledger", OpenMode::read);
  const LedgerLife life = read_life(1, *file, 10'000);
  EXPECT_TRUE(life.started);
  EXPECT_EQ(life.last_step, 1000);
  EXPECT_EQ(life.last_wall, WallTime(1000s));
  EXPECT_LT(life.marks.size(), 200U);
  EXPECT_EQ(read_life(1, *file).marks.size(), 1001U);
}

// An outage lies across the cut: where nobody read, the source saw again, and saves were made.
TEST(ReadLife, WhatStoodBeforeTheCutIsNotTheNewest) {
  LedgerText text(1, 0, 0, 1000, 0, "a");
  text.commit(10, 10, 10).line("source", 20, R"("name":"ec2","polls":9,"blind_ms":9000,"blind_now_ms":9000)");
  for (int up = 30; up < 2000; ++up) text.progress(up, up);
  text.line("source", 2000, R"("name":"ec2","polls":99,"blind_ms":9000)");
  for (int up = 2001; up < 4000; ++up) text.progress(up, up);
  MemoryFileSystem disk;
  disk.put("/ledger", text.text());
  const auto file = disk.open_file("/ledger", OpenMode::read);
  const LedgerLife all = read_life(1, *file);
  EXPECT_EQ(all.commits.size(), 1u);
  const LedgerLife ends = read_life(1, *file, 20'000);
  EXPECT_EQ(ends.last_step, 3999);
  EXPECT_EQ(ends.sources.at("ec2").blind_now, Duration::zero());
  EXPECT_EQ(ends.commits.size(), 0u);
  EXPECT_EQ(ends.durable_step, 10);
}

TEST(ReadLife, DeepNestingIsRefused) {
  LedgerText text(1, 0, 0, 0, 1, "");
  text.raw(R"({"event":"x","up_ms":1,"a":)" + std::string(10'000, '[') + std::string(10'000, ']') + "}\n");
  EXPECT_EQ(lives_of({text.text()}).at(0).skipped_lines, 1);
}

TEST(ReadLife, TimesAndStepsNeverGoBack) {
  LedgerText text(1, 50, 0, 0, 10, "");
  text.progress(40, 80).progress(20, 90).progress(50, 10, 5).progress(60, 95, 1);
  const LedgerLife life = lives_of({text.text()}).at(0);
  for (std::size_t i = 1; i < life.marks.size(); ++i) {
    EXPECT_GE(life.marks[i].up, life.marks[i - 1].up);
    EXPECT_GE(life.marks[i].step, life.marks[i - 1].step);
    EXPECT_GE(life.marks[i].waited, life.marks[i - 1].waited);
  }
  EXPECT_EQ(life.last_step, 95);
}

TEST(ReadLife, WhoNeverCameToTrainingSaysSo) {
  EXPECT_FALSE(lives_of({""}).at(0).started);
  EXPECT_FALSE(lives_of({R"({"event":"progress","t":1,"up_ms":5,"step":3})"
                         "\n"})
                   .at(0)
                   .started);
}

TEST(ReadLife, AnyBytesAreTolerated) {
  std::mt19937 random(7);
  const std::string good = whole().text();
  for (int round = 0; round < 300; ++round) {
    std::string text = good;
    for (int i = 0; i < 8; ++i) text[random() % text.size()] = static_cast<char>(random());
    const LedgerLife life = lives_of({text}).at(0);
    for (const std::int64_t step : {0, 100, 120, 1000}) EXPECT_GE(life.work_until(step), 0s);
  }
}

TEST(ReadLives, OtherNamesAreNone) {
  MemoryFileSystem disk;
  const auto run = disk.open_directory("/run", true);
  EXPECT_THAT(read_lives(*run), IsEmpty());
  disk.put("/run/ledger-a1.jsonl", "x\n");
  disk.put("/run/notes.jsonl", "x\n");
  disk.put("/run/" + ledger_name(12), whole().text());
  disk.put("/run/" + ledger_name(2), whole().text());
  const auto lives = read_lives(*run);
  ASSERT_THAT(lives, SizeIs(2));
  EXPECT_EQ(lives[0].attempt, 2U);
  EXPECT_EQ(lives[1].attempt, 12U);
}

TEST(MachineLives, LivesOnOneMachineAreOne) {
  const auto life = [](int attempt, double begin, const std::string& boot, const std::string& phase) {
    LedgerText text(attempt, 0, 0, begin, 10, boot);
    text.progress(100, 5);
    if (!phase.empty()) text.end(110, phase, 0, 5);
    return text.text();
  };
  const auto lives = lives_of({life(1, 1000, "a", "interrupted"), life(2, 2000, "b", "failed"),
                               life(3, 2200, "b", ""), life(4, 3000, "c", "interrupted")});
  const std::vector<MachineLife> on_new = machine_lives(lives, "d");
  ASSERT_THAT(on_new, SizeIs(3));
  EXPECT_EQ(on_new[0].length, 110s);
  EXPECT_TRUE(on_new[0].ended);
  EXPECT_EQ(on_new[1].length, 300s) << "from the first start to the last sign of life, both lives";
  EXPECT_TRUE(on_new[1].ended) << "silent, and the next was elsewhere";
  EXPECT_TRUE(on_new[2].ended) << "interrupted, and this is another machine";
  const std::vector<MachineLife> on_same = machine_lives(lives, "c");
  ASSERT_THAT(on_same, SizeIs(3));
  EXPECT_EQ(on_same[2].length, 110s);
  EXPECT_FALSE(on_same[2].ended) << "it is this one";
  EXPECT_FALSE(machine_lives(lives_of({life(1, 0, "a", "complete")}), "z").at(0).ended);
}

}}  // namespace holdfast::test
