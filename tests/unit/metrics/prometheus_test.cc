#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <limits>
#include <map>
#include <sstream>

#include "holdfast/base/error.h"
#include "holdfast/metrics/exporters.h"
#include "holdfast/metrics/prometheus_text.h"
#include "support/captured_log.h"
#include "support/fake_clock.h"
#include "support/fault_file_system.h"
#include "support/memory_file_system.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;

// Every event once, so that every family is there.
void tell_everything(MetricSink& sink) {
  sink.begin({.step = 100, .attempt = 2, .loss = 2});
  sink.step({.step = 101, .samples = 1616, .loss = 1.5, .learning_rate = 0.1, .took = 20ms});
  sink.step({.step = 102,
             .samples = 1632,
             .loss = 1.25,
             .learning_rate = 0.1,
             .saved = SavedEvent{.step = 101, .bytes = 188, .staging = 5ms, .write = 200ms, .commit = 300ms},
             .took = 2s});
  sink.evaluation({.step = 102, .accuracy = 0.75, .loss = 1});
  sink.system({.cpu_time = 5s,
               .resident_bytes = 4096,
               .read_bytes = 1,
               .written_bytes = 2,
               .gpus = {{.index = 0, .memory_used = 10, .memory_total = 80, .utilization = 0.5},
                        {.index = 1, .memory_used = 20, .memory_total = 80}}});
  sink.status({.commits = 1,
               .written_bytes = 188,
               .failures = {{"no_space", 1}, {"other", 0}},
               .newest = SavedEvent{.step = 101},
               .durable_step = 101,
               .durable_at = WallTime(1'700'000'005s),
               .risk_time = 3s,
               .goodput = 0.9,
               .notices = {{"ec2", 1}},
               .deadline = WallTime(1'700'000'120s)});
  sink.end({});
}

std::string everything() {
  MemoryFileSystem disk;
  disk.open_directory("/prom", true);
  tell_everything(*prometheus_sink(disk, "/prom/run1.prom"));
  return disk.get_text("/prom/run1.prom");
}

TEST(Prometheus, HasEveryFamilyOnceWithHelpAndType) {
  const std::string text = everything();
  std::map<std::string, int> helps;
  std::map<std::string, int> types;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string hash;
    std::string what;
    std::string name;
    words >> hash >> what >> name;
    if (hash == "#") ++(what == "HELP" ? helps : types)[name];
    if (hash != "#") {
      EXPECT_THAT(line, HasSubstr("{run=\"run1\",rank=\"0\"")) << line;
    }
  }
  EXPECT_EQ(helps, types);
  for (const char* name :
       {"holdfast_build_info", "holdfast_train_steps_total", "holdfast_train_samples_total",
        "holdfast_train_loss", "holdfast_train_learning_rate", "holdfast_train_step_duration_seconds",
        "holdfast_checkpoint_commits_total", "holdfast_checkpoint_failures_total",
        "holdfast_checkpoint_written_bytes_total", "holdfast_checkpoint_last_commit_timestamp_seconds",
        "holdfast_checkpoint_last_commit_step", "holdfast_checkpoint_commit_duration_seconds",
        "holdfast_checkpoint_stage_duration_seconds", "holdfast_work_at_risk_seconds",
        "holdfast_interruption_notices_total", "holdfast_interruption_deadline_timestamp_seconds",
        "holdfast_goodput_ratio"}) {
    EXPECT_EQ(helps[name], 1) << name;
  }
  EXPECT_TRUE(text.ends_with("\n"));
  EXPECT_THAT(text, Not(HasSubstr("\n\n")));
}

TEST(Prometheus, ValuesAreThoseOfTheEvents) {
  const std::string text = everything();
  const auto has = [&](const std::string& name, const std::string& more, const std::string& value) {
    EXPECT_THAT(text, HasSubstr("\n" + name + "{run=\"run1\",rank=\"0\"" + more + "} " + value + "\n"));
  };
  has("holdfast_train_steps_total", "", "2");
  has("holdfast_train_samples_total", "", "16");
  has("holdfast_train_step", "", "102");
  has("holdfast_train_loss", "", "1.25");
  has("holdfast_train_step_duration_seconds_bucket", ",le=\"0.03\"", "1");
  has("holdfast_train_step_duration_seconds_bucket", ",le=\"1\"", "1");
  has("holdfast_train_step_duration_seconds_bucket", ",le=\"3\"", "2");
  has("holdfast_train_step_duration_seconds_count", "", "2");
  has("holdfast_checkpoint_commit_duration_seconds_bucket", ",le=\"+Inf\"", "1");
  has("holdfast_checkpoint_commit_duration_seconds_sum", "", "0.5");
  has("holdfast_checkpoint_failures_total", ",reason=\"no_space\"", "1");
  has("holdfast_checkpoint_last_commit_timestamp_seconds", "", "1700000005");
  has("holdfast_interruption_notices_total", ",source=\"ec2\"", "1");
  has("holdfast_gpu_memory_used_bytes", ",gpu=\"1\"", "20");
  has("holdfast_gpu_utilization_ratio", ",gpu=\"0\"", "0.5");
  EXPECT_THAT(text, Not(HasSubstr("holdfast_gpu_utilization_ratio{run=\"run1\",rank=\"0\",gpu=\"1\"")));
}

TEST(Prometheus, TheCheckerOfPrometheusAccepts) {
  const Ended found = Subprocess({"/usr/bin/env", "promtool", "--version"}).wait();
  if (found.exit_code != 0) GTEST_SKIP() << "there is no promtool (package prometheus)";
  TemporaryFolder folder;
  write_text(folder.path() / "text", everything());
  const Ended ended =
      Subprocess({"/bin/sh", "-c", "promtool check metrics < '" + (folder.path() / "text").string() + "'"})
          .wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.out << ended.err;
  EXPECT_EQ(ended.out + ended.err, "");
}

TEST(Prometheus, WhatHasNoNumberHasItsOwnWord) {
  PrometheusText text("run=\"a\"");
  text.gauge("x", "X.", std::numeric_limits<double>::quiet_NaN());
  text.gauge("y", "Y.", -std::numeric_limits<double>::infinity());
  EXPECT_THAT(text.text(), HasSubstr("x{run=\"a\"} NaN\n"));
  EXPECT_THAT(text.text(), HasSubstr("y{run=\"a\"} -Inf\n"));
  EXPECT_EQ(prometheus_escaped("a\"b\\c\nd"), R"(a\"b\\c\nd)");
  EXPECT_EQ(prometheus_escaped("r\xc3\xa9sum\xe9"), "r\xc3\xa9sum\\\\xe9")
      << "a folder's name that is no UTF-8";
}

TEST(Prometheus, OthersMayReadTheFileAndNothingElseIsLeft) {
  TemporaryFolder folder;
  const auto path = folder.path() / "x.prom";
  write_text(folder.path() / "x.prom.tmp-4711", "of a killed attempt");
  umask(0077);
  tell_everything(*prometheus_sink(FileSystem::real(), path));
  umask(0022);
  struct stat found {};
  ASSERT_EQ(stat(path.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777U, 0644U);
  // Somebody has given it to a group alone.
  ASSERT_EQ(chmod(path.c_str(), 0640), 0);
  tell_everything(*prometheus_sink(FileSystem::real(), path));
  ASSERT_EQ(stat(path.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777U, 0640U);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(Prometheus, ReplacesNoFolderAndNoDevice) {
  TemporaryFolder folder;
  EXPECT_THROW(prometheus_sink(FileSystem::real(), folder.path()), IoError);
  EXPECT_THROW(prometheus_sink(FileSystem::real(), "/dev/full"), IoError);
  EXPECT_THROW(prometheus_sink(FileSystem::real(), folder.path() / ""), IoError);
}

TEST(Prometheus, IsWrittenEveryTenSecondsAndAtTheEnd) {
  MemoryFileSystem disk;
  disk.open_directory("/prom", true);
  FaultFileSystem fs(disk);
  FakeClock clock;
  const auto sink = prometheus_sink(fs, "/prom/a.prom", {}, clock);
  sink->begin({});
  const auto before = fs.count(Op::write);
  for (int i = 1; i <= 50; ++i) sink->step({.step = i});
  EXPECT_EQ(fs.count(Op::write), before);
  clock.advance(10s);
  sink->step({.step = 51});
  sink->step({.step = 52});
  EXPECT_EQ(fs.count(Op::write), before + 1);
  sink->end({});
  EXPECT_EQ(fs.count(Op::write), before + 2);
  EXPECT_THAT(disk.get_text("/prom/a.prom"), HasSubstr("holdfast_train_step{run=\"a\",rank=\"0\"} 52\n"));
}

TEST(Prometheus, AFullDiskIsSaidOnceAndTheOldFileStands) {
  MemoryFileSystem disk;
  disk.open_directory("/prom", true);
  FaultFileSystem fs(disk);
  FakeClock clock;
  const auto sink = prometheus_sink(fs, "/prom/a.prom", {}, clock);
  sink->begin({});
  const std::string old = disk.get_text("/prom/a.prom");
  fs.fail(Op::write, 1, ENOSPC, {.for_ever = true});
  CapturedLog log;
  for (int i = 1; i <= 5; ++i) {
    clock.advance(20s);
    sink->step({.step = i});
  }
  const std::string said = log.text();
  EXPECT_THAT(said, HasSubstr("no more metrics are written to /prom/a.prom (training goes on)"));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1);
  EXPECT_EQ(disk.get_text("/prom/a.prom"), old);
}

}}  // namespace holdfast::test
