#include "holdfast/metrics/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/metrics/csv_row.h"
#include "support/fake_clock.h"
#include "support/fault_file_system.h"
#include "support/memory_file_system.h"
#include "support/quiet_call.h"
#include "support/subprocess.h"

HOLDFAST_COUNT_ALLOCATIONS

namespace holdfast { namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kHeader = std::string(kCsvHeader) + "\n";
constexpr const char* kPath = "/run/training.csv";

std::string row(int step, int attempt = 1, const std::string& evaluation = ",") {
  return "0," + std::to_string(step) + ",0,1.5,0.1,0.5,," + std::to_string(attempt) + "," + evaluation + "\n";
}

std::string rows(int first, int last, int attempt = 1) {
  std::string text;
  for (int step = first; step <= last; ++step) text += row(step, attempt);
  return text;
}

class CsvTest : public ::testing::Test {
 protected:
  CsvTest() {
    disk_.open_directory("/run", true);
    testing::internal::CaptureStderr();
  }
  ~CsvTest() override { testing::internal::GetCapturedStderr(); }

  // What the sink said so far.
  static std::string said() {
    const std::string text = testing::internal::GetCapturedStderr();
    testing::internal::CaptureStderr();
    return text;
  }
  std::unique_ptr<CsvSink> begin(std::int64_t step, std::uint64_t attempt, const CsvOptions& options = {}) {
    auto sink = std::make_unique<CsvSink>(fs_, kPath, options, clock_);
    sink->begin({.step = step, .attempt = attempt});
    return sink;
  }
  std::string text(const char* path = kPath) { return disk_.get_text(path); }
  std::vector<std::string> names() { return disk_.names("/run"); }

  test::MemoryFileSystem disk_;
  test::FaultFileSystem fs_{disk_};
  test::FakeClock clock_;
};

void train(CsvSink& sink, int first, int last) {
  for (int step = first; step <= last; ++step) sink.step({.step = step, .loss = 0.5, .learning_rate = 0.1});
}

std::vector<std::int64_t> steps_of(const std::string& text) {
  std::vector<std::int64_t> steps;
  EXPECT_TRUE(text.starts_with(kHeader)) << text;
  EXPECT_TRUE(text.ends_with("\n")) << text;
  for (const auto& line : test::lines_of(text.substr(kHeader.size()))) {
    const auto row = parse_csv_row(line);
    if (!row || !row->whole) {
      ADD_FAILURE() << "torn: " << line;
      continue;
    }
    steps.push_back(row->step);
  }
  return steps;
}

TEST_F(CsvTest, OneHeaderThenARowAStep) {
  const auto sink = begin(0, 3);
  EXPECT_EQ(text(), kHeader);
  train(*sink, 1, 2);
  EXPECT_THAT(steps_of(text()), ElementsAre(1, 2));
  EXPECT_EQ(parse_csv_row(test::lines_of(text())[1])->attempt, 3U);
  EXPECT_THAT(names(), ElementsAre("training.csv"));
  EXPECT_EQ(said(), "");
}

TEST_F(CsvTest, OneWriteARow) {
  const auto sink = begin(0, 1);
  fs_.clear_log();
  train(*sink, 1, 10);
  EXPECT_EQ(fs_.count(test::Op::write), 10);
  EXPECT_EQ(fs_.mutation_count(), 10);
  sink->evaluation({.step = 10});
  EXPECT_EQ(fs_.mutation_count(), 11);
}

TEST_F(CsvTest, ARowAllocatesNothing) {
  const test::TemporaryFolder folder;
  CsvSink sink(FileSystem::real(), folder.path() / "training.csv");
  sink.begin({.step = 0, .attempt = 1});
  const std::int64_t before = test::allocations_here;
  train(sink, 1, 100);
  sink.evaluation({.step = 100, .accuracy = 0.5, .loss = 0.1});
  EXPECT_EQ(test::allocations_here - before, 0);
  EXPECT_EQ(steps_of(test::read_text(folder.path() / "training.csv")).size(), 100U);
  EXPECT_GT(test::allocations_here, before) << "nobody counts";
}

TEST_F(CsvTest, AnEvaluationCompletesTheRowOfItsStep) {
  const auto sink = begin(0, 1);
  train(*sink, 1, 2);
  sink->evaluation({.step = 2, .accuracy = 0.11, .loss = 2.25});
  train(*sink, 3, 3);
  EXPECT_THAT(steps_of(text()), ElementsAre(1, 2, 3));
  EXPECT_TRUE(test::lines_of(text())[2].ends_with(",1,2.25,0.11"));
}

TEST_F(CsvTest, AnEvaluationThatIsMadeAgainAfterAResumeTakesThePlaceOfTheFirst) {
  disk_.put(kPath, kHeader + row(1) + row(2, 1, "2.2512345,0.11"));
  const auto sink = begin(2, 2);
  sink->evaluation({.step = 2, .accuracy = 0.5, .loss = 2});
  EXPECT_EQ(text(), kHeader + row(1) + row(2, 1, "2,0.5"));
  train(*sink, 3, 3);
  EXPECT_THAT(steps_of(text()), ElementsAre(1, 2, 3));
}

TEST_F(CsvTest, AnEvaluationOfAStepWithoutARowHasOne) {
  const auto sink = begin(7, 2);
  sink->evaluation({.step = 7, .accuracy = 0.5, .loss = 2});
  sink->evaluation({.step = 6, .accuracy = 0, .loss = 0});  // long gone
  train(*sink, 8, 8);
  EXPECT_THAT(steps_of(text()), ElementsAre(7, 8));
  EXPECT_TRUE(test::lines_of(text())[1].ends_with(",,,,2,2,0.5")) << text();
}

TEST_F(CsvTest, AResumeDropsTheRowsThatAreComputedAgain) {
  disk_.put(kPath, kHeader + rows(1, 9));
  const auto sink = begin(5, 2);
  EXPECT_EQ(text(), kHeader + rows(1, 5)) << "before the first new row";
  EXPECT_THAT(said(), HasSubstr("/run/training.csv: 4 rows of steps after 5 are dropped"));
  train(*sink, 6, 9);
  EXPECT_THAT(steps_of(text()), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9));
  EXPECT_THAT(names(), ElementsAre("training.csv"));
}

// What a machine that vanished had not yet on its disk.
TEST_F(CsvTest, StepsWithoutARowAreNamed) {
  disk_.put(kPath, kHeader + rows(1, 3));
  const auto sink = begin(9, 2);
  EXPECT_THAT(said(), HasSubstr("/run/training.csv: steps 4 to 9 have no row"));
  train(*sink, 10, 10);
  EXPECT_THAT(steps_of(text()), ElementsAre(1, 2, 3, 10));
}

TEST_F(CsvTest, AFreshStartOfTheSameRunKeepsNoRow) {
  disk_.put(kPath, kHeader + rows(1, 9));
  begin(0, 2);
  EXPECT_EQ(text(), kHeader);
  EXPECT_THAT(names(), ElementsAre("training.csv"));
}

TEST_F(CsvTest, ALoopThatSaysNothingOfItsResumeStillHasEachStepOnce) {
  disk_.put(kPath, kHeader + rows(1, 9));
  CsvSink sink(fs_, kPath, {}, clock_);
  train(sink, 6, 9);
  train(sink, 9, 9);
  EXPECT_THAT(steps_of(text()), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9));
  EXPECT_EQ(parse_csv_row(test::lines_of(text())[6])->attempt, 0U) << "the new row of step 6";
}

TEST_F(CsvTest, ALongFileIsCopiedWhole) {
  disk_.put(kPath, kHeader + rows(1, 30000));
  const auto sink = begin(29000, 2);
  EXPECT_EQ(text(), kHeader + rows(1, 29000));
  train(*sink, 29001, 29001);
  EXPECT_TRUE(text().starts_with(kHeader + rows(1, 29000)));
  EXPECT_EQ(steps_of(text()).size(), 29001U);
}

// Cut at each byte behind the checkpoint's row, as by kill -9 in the middle of a write.
TEST_F(CsvTest, ATornLastRowIsDropped) {
  const std::string whole = kHeader + rows(1, 5);
  for (std::size_t extra = 0; extra <= row(6).size(); ++extra) {
    disk_.put(kPath, whole + row(6).substr(0, extra));
    const auto sink = begin(5, 2);
    EXPECT_EQ(text(), whole) << extra;
    train(*sink, 6, 6);
    EXPECT_THAT(steps_of(text()), ElementsAre(1, 2, 3, 4, 5, 6)) << extra;
  }
  EXPECT_THAT(names(), ElementsAre("training.csv"));
}

// The checkpoint of that step may be durable, so the row must stay.
TEST_F(CsvTest, ARowTornByItsEvaluationStays) {
  const std::string fixed = row(5).substr(0, row(5).size() - 2), before = kHeader + rows(1, 4);
  const std::string evaluation = "2.25,0.11\n";
  for (std::size_t written = 0; written < evaluation.size(); ++written) {
    std::string torn = ",\n";  // what was there
    torn.replace(0, std::min<std::size_t>(written, 2), evaluation.substr(0, written));
    disk_.put(kPath, before + fixed + torn);
    begin(5, 2);
    EXPECT_EQ(text(), before + row(5)) << written;
  }
}

TEST_F(CsvTest, AFileThatIsEmptyOrEndsInItsHeaderIsBegunAnew) {
  for (const std::string& old : {std::string(), kHeader.substr(0, 1), kHeader.substr(0, 20),
                                 kHeader.substr(0, kHeader.size() - 1), kHeader}) {
    disk_.put(kPath, old);
    const auto sink = begin(5, 2);
    train(*sink, 6, 6);
    EXPECT_THAT(steps_of(text()), ElementsAre(6));
  }
  EXPECT_THAT(names(), ElementsAre("training.csv"));
  EXPECT_EQ(said(), "");
}

TEST_F(CsvTest, AnotherSetOfColumnsIsKeptUnderAnotherName) {
  const std::string other = "epoch,step,loss\n0,1,0.5\n", another = "a fine poem without columns";
  disk_.put(kPath, other);
  auto sink = begin(5, 2);
  train(*sink, 6, 6);
  EXPECT_THAT(steps_of(text()), ElementsAre(6));
  EXPECT_EQ(text("/run/training.other-columns.csv"), other);
  EXPECT_THAT(said(), HasSubstr("kept beside it as training.other-columns.csv"));

  disk_.put(kPath, another);
  begin(6, 3);
  EXPECT_EQ(text("/run/training.other-columns.csv"), other);
  EXPECT_EQ(text("/run/training.other-columns-2.csv"), another);

  const std::string endless(1 << 20, 'x');
  disk_.put(kPath, endless);
  begin(6, 4);
  EXPECT_EQ(text("/run/training.other-columns-3.csv"), endless);
  EXPECT_EQ(text(), kHeader);
}

TEST_F(CsvTest, AnotherRunsRowsAreKeptUnderAnotherName) {
  const std::string other = kHeader + rows(1, 20000, 1) + rows(20001, 20009, 2);
  disk_.put(kPath, other);
  begin(20003, 2);  // two runs with one file: this one has not written as attempt 2 yet
  EXPECT_EQ(text(), kHeader);
  EXPECT_EQ(text("/run/training.other-run.csv"), other);
}

TEST_F(CsvTest, AnEditorsLineEndsAreTaken) {
  std::string old = kHeader + row(1) + row(2, 1, "2.5,0.5") + row(3);
  for (std::size_t at = old.find('\n'); at != std::string::npos; at = old.find('\n', at + 2)) {
    old.insert(at, "\r");
  }
  disk_.put(kPath, old);
  begin(2, 2);
  EXPECT_EQ(text(), kHeader + row(1) + row(2, 1, "2.5,0.5"));
  EXPECT_THAT(names(), ElementsAre("training.csv"));
}

TEST_F(CsvTest, WhatIsNoRowIsNotLost) {
  const std::vector<std::string> damage = {
      "hello\n",
      row(2),
      row(1),
      std::string(300, '\0') + "\n",
      std::string(1 << 19, '7') + "\n" + row(2),
      std::string(1 << 18, '7') + row(3, 1, "9,9"),  // one line, longer than a block by what looks like a row
      kHeader};
  for (const std::string& lines : damage) {
    const std::string old = kHeader + rows(1, 2) + lines + rows(3, 9);
    disk_.put(kPath, old);
    const auto sink = begin(5, 2);
    EXPECT_EQ(text(), kHeader + rows(1, 5)) << lines.substr(0, 40);
    EXPECT_EQ(text("/run/training.unreadable.csv"), old);
    fs_.open_directory("/run", false)->unlink("training.unreadable.csv");
  }
  disk_.put(kPath, kHeader + rows(1, 2) + "\n\n" + rows(3, 5));
  begin(5, 2);
  EXPECT_EQ(text(), kHeader + rows(1, 5));
  EXPECT_THAT(names(), ElementsAre("training.csv")) << "an empty line is nothing that could be lost";
}

TEST_F(CsvTest, ABranchKeepsTheRowsThatItLeaves) {
  const std::string old = kHeader + rows(1, 9);
  disk_.put(kPath, old);
  begin(9, 2, {.keep_dropped = true});
  EXPECT_THAT(names(), ElementsAre("training.csv"));
  const auto sink = begin(5, 3, {.keep_dropped = true});
  train(*sink, 6, 6);
  EXPECT_THAT(steps_of(text()), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_EQ(text("/run/training.step-9.csv"), old);
}

TEST_F(CsvTest, AMissingDirectoryIsMade) {
  CsvSink sink(fs_, "/run/deep/er/training.csv", {}, clock_);
  sink.begin({.step = 0, .attempt = 1});
  EXPECT_EQ(text("/run/deep/er/training.csv"), kHeader);
}

TEST_F(CsvTest, SomethingElseUnderThatNameIsRefusedBeforeTheTrainingStarts) {
  disk_.open_directory(kPath, true);
  EXPECT_THROW(CsvSink(fs_, kPath, {}, clock_), IoError);
  disk_.link("/run/link.csv");
  EXPECT_THROW(CsvSink(fs_, "/run/link.csv", {}, clock_), IoError);
  EXPECT_THROW(CsvSink(fs_, "/run/", {}, clock_), IoError);

  const test::TemporaryFolder folder;
  const std::string pipe = (folder.path() / "pipe.csv").string();
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THROW(CsvSink(FileSystem::real(), pipe), IoError);
  EXPECT_EQ(fs_.mutation_count(), 0);
}

TEST_F(CsvTest, AFullDiskIsSaidOnceAndTrainingGoesOn) {
  const auto sink = begin(0, 1);
  train(*sink, 1, 2);
  fs_.fail(test::Op::write, 1, ENOSPC, {.short_write = true});
  train(*sink, 3, 9);
  sink->evaluation({.step = 9});
  sink->finish();
  EXPECT_TRUE(sink->failed());
  EXPECT_THAT(steps_of(text()), ElementsAre(1, 2)) << "the half row is cut off";
  const std::string text = said();
  EXPECT_THAT(text, HasSubstr("warning: no more metrics are written to /run/training.csv (training goes on): "
                              "write /run/training.csv: No space left"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
}

TEST_F(CsvTest, AResumeOnAFullDiskLeavesTheFileAsItIs) {
  disk_.put(kPath, kHeader + rows(1, 9));
  fs_.fail(test::Op::write, 1, ENOSPC, {.for_ever = true, .short_write = true});
  const auto sink = begin(5, 2);
  train(*sink, 6, 7);
  EXPECT_TRUE(sink->failed());
  EXPECT_EQ(text(), kHeader + rows(1, 9));
  EXPECT_THAT(names(), ElementsAre("training.csv")) << "the disk needs the room";
  EXPECT_THAT(said(), HasSubstr("no more metrics are written to /run/training.csv (training goes on): "));
}

TEST_F(CsvTest, AnEvaluationThatFindsAFullDiskLeavesItsRow) {
  const auto sink = begin(0, 1);
  train(*sink, 1, 2);
  const std::string before = text();
  fs_.fail(test::Op::write, 1, ENOSPC, {.short_write = true});
  sink->evaluation({.step = 2, .accuracy = 0.11, .loss = 2.25});
  EXPECT_TRUE(sink->failed());
  EXPECT_EQ(text(), before);
}

// Each operation of a resume fails once, and a kill before it: the next resume finds all rows.
TEST_F(CsvTest, AResumeThatFailsOrIsKilledAnywhereLosesNoRow) {
  const std::string good = kHeader + rows(1, 9), damaged = kHeader + rows(1, 4) + "hello\n" + rows(5, 9);
  for (const std::string& old : {good, damaged}) {
    for (const bool after : {false, true}) {
      bool fired = true;
      for (int nth = 1; fired; ++nth) {
        for (const std::string& name : names()) fs_.open_directory("/run", false)->unlink(name);
        disk_.put(kPath, old);
        const int fired_before = fs_.faults_fired();
        fs_.fail_any(nth, EIO, {.for_ever = true, .after = after});
        bool failed = true;
        try {
          failed = begin(5, 2)->failed();
        } catch (const IoError&) {  // the constructor's look
        }
        fired = fs_.faults_fired() > fired_before;
        EXPECT_TRUE(!failed || fired);
        fs_.clear_faults();
        if (const auto all = names(); std::count(all.begin(), all.end(), "training.csv") > 0) {
          EXPECT_TRUE(text() == old || text() == kHeader + rows(1, 5)) << nth << ": " << text();
        }
        const auto sink = begin(5, 3);
        EXPECT_FALSE(sink->failed());
        EXPECT_EQ(text(), kHeader + rows(1, 5)) << nth;
        if (old == damaged) {
          EXPECT_EQ(text("/run/training.unreadable.csv"), old) << nth;
        }
        const auto all = names();
        EXPECT_EQ(all.size(), old == damaged ? 2U : 1U) << nth << testing::PrintToString(all);
        ASSERT_LT(nth, 200);
      }
    }
  }
}

// The copy is durable before it takes the old file's name.
TEST_F(CsvTest, APowerCutAfterAResumeLeavesTheOldRowsOrTheNew) {
  disk_.put(kPath, kHeader + rows(1, 9));
  begin(5, 2);
  const std::string least = disk_.crash().get_text(kPath);
  EXPECT_TRUE(least == kHeader + rows(1, 9) || least == kHeader + rows(1, 5)) << least;
  for (const auto& kept : disk_.unsynced({})) {
    EXPECT_TRUE(disk_.crash_keeping({kept}).get_text(kPath).starts_with(kHeader + rows(1, 5))) << kept;
  }
}

TEST_F(CsvTest, TheUmaskDecidesWhoReadsTheFileAndAResumeChangesNothing) {
  test::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "curves/a.csv";
  const auto mode = [](const std::filesystem::path& of) {
    return static_cast<unsigned>(std::filesystem::status(of).permissions());
  };
  umask(027);
  CsvSink(FileSystem::real(), path, {}, clock_).begin({.step = 0, .attempt = 1});
  umask(022);
  EXPECT_EQ(mode(path), 0640u);
  EXPECT_EQ(mode(path.parent_path()), 0750u);
  std::filesystem::permissions(path, std::filesystem::perms(0664));
  CsvSink(FileSystem::real(), path, {}, clock_).begin({.step = 0, .attempt = 2});
  EXPECT_EQ(mode(path), 0664u);
}

TEST_F(CsvTest, AnOlderProcessThatStillWritesDoesNotMeetTheNewOne) {
  const auto old = begin(0, 1);
  train(*old, 1, 9);
  const auto sink = begin(5, 2);
  train(*old, 10, 12);
  train(*sink, 6, 7);
  train(*old, 13, 13);
  EXPECT_THAT(steps_of(text()), ElementsAre(1, 2, 3, 4, 5, 6, 7));
}

}}  // namespace holdfast
