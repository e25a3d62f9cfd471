// Rule 10: what an attempt does right now, rewritten in place and never synced.
#include "holdfast/store/run_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <limits>

#include "holdfast/base/error.h"
#include "holdfast/store/names.h"
#include "support/fault_file_system.h"
#include "support/memory_file_system.h"

namespace holdfast::test { namespace {

constexpr char kProgressRun[] = "/vol/run";

RunProgress full_progress() {
  return {.attempt = 3,
          .phase = TrainingPhase::evaluating,
          .beat = 7,
          .unix_ms = 1'762'430'000'123,
          .step = 1234,
          .last_step = 5000,
          .still_ms = 1500,
          .loss = 0.25,
          .steps_per_second = 8.5,
          .durable_step = 1200,
          .risk_steps = 34,
          .risk_ms = 4000,
          .writing_ms = 250,
          .next_save_ms = 9000,
          .next_save_step = 1500,
          .save_interval_ms = 60'000,
          .saves = 12,
          .saved_bytes = 1'000'000'000'000,
          .waited_ms = 410,
          .last_bytes = 188'000'000,
          .last_save_ms = 210,
          .failure = "write: \"No space\" left"};
}

class Progress : public testing::Test {
 protected:
  Progress() { run_->open_directory(kAttemptsDirectory, true); }
  std::optional<RunProgress> read(AttemptNumber attempt = 3) { return read_progress(*run_, attempt); }
  std::string file() const { return path_ + "/3.progress.json"; }

  MemoryFileSystem disk_;
  FaultFileSystem faults_{disk_};
  std::unique_ptr<Directory> run_ = faults_.open_directory(kProgressRun, true);
  const std::string path_ = std::string(kProgressRun) + "/" + kAttemptsDirectory;
};

TEST_F(Progress, ComesBackFromItsRecord) {
  const std::string record = to_record(full_progress());
  EXPECT_EQ(record.size(), kProgressBytes);
  const auto back = progress_from_record(record);
  ASSERT_TRUE(back);
  EXPECT_EQ(to_record(*back), record);
  for (const double loss : {std::nan(""), std::numeric_limits<double>::infinity(), -0.1}) {
    RunProgress progress = full_progress();
    progress.loss = loss;
    const auto read_back = progress_from_record(to_record(progress));
    ASSERT_TRUE(read_back && read_back->loss);
    EXPECT_TRUE(std::isnan(loss) ? std::isnan(*read_back->loss) : *read_back->loss == loss);
  }
}

TEST_F(Progress, ALongFailureFits) {
  RunProgress progress = full_progress();
  progress.failure = std::string(100'000, '\x01') + std::string(100'000, '"');
  EXPECT_EQ(to_record(progress).size(), kProgressBytes);
  EXPECT_TRUE(progress_from_record(to_record(progress)));
}

// A read that met a write has the beat of one record at its beginning and that of another at its end.
TEST_F(Progress, ATornRecordIsNotBelieved) {
  const std::string old = to_record(full_progress());
  RunProgress next = full_progress();
  next.beat = 8;
  const std::string replaced = to_record(next);
  for (const std::size_t at : {1u, 40u, 2000u, 4085u}) {
    EXPECT_FALSE(progress_from_record(replaced.substr(0, at) + old.substr(at)).has_value() && at > 9) << at;
  }
  EXPECT_FALSE(progress_from_record(""));
  EXPECT_FALSE(progress_from_record(std::string(kProgressBytes, '\0')));
  EXPECT_FALSE(progress_from_record("{}"));
}

TEST_F(Progress, OneAttemptsRecordSaysNothingAboutAnother) {
  ProgressFile(faults_, kProgressRun, 3).write(full_progress());
  EXPECT_TRUE(read());
  EXPECT_FALSE(read(4));
  disk_.put(path_ + "/4.progress.json", to_record(full_progress()));
  EXPECT_FALSE(read(4)) << "it names attempt 3";
}

TEST_F(Progress, IsRewrittenInPlaceByOneWriteAndNeverSynced) {
  ProgressFile file(faults_, kProgressRun, 3);
  file.write(full_progress());
  const std::size_t before = faults_.log().size();
  RunProgress next = full_progress();
  next.step = 1240;
  next.beat = 8;
  file.write(next);
  const auto log = faults_.log();
  ASSERT_EQ(log.size(), before + 1);
  EXPECT_EQ(log.back().kind, Op::write);
  EXPECT_EQ(log.back().offset, 0u);
  EXPECT_EQ(log.back().length, kProgressBytes);
  for (const Operation& operation : log) {
    EXPECT_NE(operation.kind, Op::sync_file);
    EXPECT_NE(operation.kind, Op::rename_over);
  }
  EXPECT_EQ(read()->step, 1240);
}

// Somebody emptied the directory: the next write does not bring it back.
// A descriptor that a network file system has forgotten fails for good.
TEST_F(Progress, IsOpenedAnewAfterAFailure) {
  for (const Op kind : {Op::create, Op::write}) {
    for (const bool after : {false, true}) {
      MemoryFileSystem volume;
      FaultFileSystem faults(volume);
      faults.open_directory(kProgressRun, true)->open_directory("attempts", true);
      ProgressFile file(faults, kProgressRun, 3);
      bool dead = kind == Op::write;
      if (kind == Op::create) faults.fail(kind, 1, ETIMEDOUT, {.after = after});
      faults.set_hook([&](const Operation& operation) {
        if (operation.kind == Op::open_overwrite) dead = false;
        if (operation.kind == Op::write && dead) throw IoError("write", operation.path, ESTALE);
      });
      EXPECT_THROW(file.write({.attempt = 3, .beat = 1}), IoError);
      for (const std::int64_t beat : {2, 3}) {
        EXPECT_NO_THROW(file.write({.attempt = 3, .beat = beat})) << name_of(kind);
        const auto read = read_progress(*volume.open_directory(kProgressRun, false), 3);
        ASSERT_TRUE(read);
        EXPECT_EQ(read->beat, beat);
      }
    }
  }
}

TEST_F(Progress, MakesNoDirectory) {
  const char* const other = "/vol/other";
  ProgressFile(faults_, other, 3).write(full_progress());
  EXPECT_EQ(disk_.open_directory(other, false), nullptr);
}

}}  // namespace holdfast::test
