#include "holdfast/interruption/sources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>

#include "holdfast/base/error.h"
#include "holdfast/interruption/deadline_source.h"
#include "support/fake_clock.h"
#include "support/subprocess.h"

namespace holdfast { namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class Sources : public testing::Test {
 protected:
  Sources() {
    for (const char* const name : kVariables) {
      if (const char* const value = std::getenv(name)) before_[name] = value;
      unsetenv(name);
    }
  }
  ~Sources() override {
    for (const char* const name : kVariables) unsetenv(name);
    for (const auto& [name, value] : before_) setenv(name.c_str(), value.c_str(), 1);
  }
  std::vector<std::string> names(const SourceOptions& options = {}) {
    std::vector<std::string> found;
    for (const auto& source : make_sources(options, clock_)) found.emplace_back(source->name());
    return found;
  }

  static constexpr const char* kVariables[] = {
      "HOLDFAST_SOURCES",           "HOLDFAST_NOTICE_FILE",
      "SLURM_JOB_END_TIME",         "LOCAL_RANK",
      "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID",
      "AWS_EC2_METADATA_DISABLED",  "AWS_EC2_METADATA_SERVICE_ENDPOINT",
      "HOLDFAST_SUPERVISED_SINCE",  "HOLDFAST_SUPERVISED_UPTIME",
      "HOLDFAST_DEADLINE_SIGNAL",   "HOLDFAST_STOP_SIGNALS"};
  std::map<std::string, std::string> before_;
  test::FakeClock clock_;
};

TEST_F(Sources, UnderASupervisorMaxWallIsTheTimeOfAllLives) {
  setenv("HOLDFAST_SOURCES", "deadline", 1);
  const auto left = [&](Duration since_first_life) -> std::optional<Duration> {
    const auto began = clock_.wall_now() - std::chrono::duration_cast<WallTime::duration>(since_first_life);
    setenv("HOLDFAST_SUPERVISED_SINCE",
           std::to_string(std::chrono::floor<std::chrono::seconds>(began.time_since_epoch()).count()).c_str(),
           1);
    const auto news = make_sources({.signals = false, .max_wall = 2h}, clock_).at(0)->poll();
    return news.empty() ? std::nullopt : std::optional<Duration>(*news[0].deadline - clock_.now());
  };
  EXPECT_EQ(left(1h), std::nullopt);
  EXPECT_EQ(left(1h + 55min), 5min);
  EXPECT_EQ(left(3h), -1h) << "there is none left";
  EXPECT_EQ(left(-5h), std::nullopt) << "a clock that was set back gives this process its own time";
  setenv("HOLDFAST_SUPERVISED_SINCE", "yesterday", 1);
  EXPECT_THROW(make_sources({.signals = false, .max_wall = 2h}, clock_), UsageError);
}

TEST_F(Sources, TheTimeOfAllLivesHeedsNoClockThatIsSet) {
  const std::string now = uptime_here();
  if (now.empty()) GTEST_SKIP() << "this machine has no boot id";
  setenv("HOLDFAST_SOURCES", "deadline", 1);
  const auto left_after = [&](std::chrono::seconds lives, const std::string& boot) {
    setenv("HOLDFAST_SUPERVISED_SINCE", "1000000000", 1);
    const std::int64_t then = std::stoll(now) - lives.count();
    setenv("HOLDFAST_SUPERVISED_UPTIME", (std::to_string(then) + boot).c_str(), 1);
    const auto news = make_sources({.signals = false, .max_wall = 2h}, clock_).at(0)->poll();
    return news.empty() ? std::nullopt : std::optional<Duration>(*news[0].deadline - clock_.now());
  };
  const std::string boot = now.substr(now.find('/'));
  EXPECT_EQ(left_after(1h, boot), std::nullopt) << "the wall clock says that all of it is over";
  const auto left = left_after(1h + 55min, boot);
  ASSERT_TRUE(left);
  EXPECT_LE(*left, 5min);
  EXPECT_GT(*left, 4min);
  EXPECT_LT(left_after(1h, "/another"), Duration::zero()) << "another start of a machine: the wall clock";
}

TEST(HandStarted, ATestAsksNoMetadataServiceOfItsMachine) {
  if (std::getenv("HOLDFAST_TEST_STARTED_BY_HAND") != nullptr) {
    EXPECT_STREQ(std::getenv("HOLDFAST_SOURCES"), "signal,file,deadline");
    return;
  }
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const std::vector<std::string> command{"/usr/bin/env", "-u", "HOLDFAST_SOURCES", self,
                                         "--gtest_filter=HandStarted.*"};
  const test::Ended ended = test::Subprocess(command, {{"HOLDFAST_TEST_STARTED_BY_HAND", "1"}}).wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.out;
  EXPECT_THAT(ended.out, HasSubstr("[  PASSED  ] 1 test"));
}

TEST_F(Sources, TheDefaultIsSignalAndCloud) {
  EXPECT_THAT(names(), ElementsAre("signal", "cloud"));
  EXPECT_THAT(names({.notice_files = {"/a", "/b", "/a"}, .max_wall = 2h}),
              ElementsAre("signal", "file", "file", "deadline", "cloud"));
  EXPECT_THAT(names({.signals = false, .cloud = false}), IsEmpty());
  setenv("HOLDFAST_NOTICE_FILE", "/c", 1);
  setenv("SLURM_JOB_END_TIME", "4000000000", 1);
  EXPECT_THAT(names({.notice_files = {"/a"}}), ElementsAre("signal", "file", "file", "deadline", "cloud"));
}

TEST_F(Sources, TheVariablePicks) {
  setenv("HOLDFAST_SOURCES", "ec2,signal", 1);
  EXPECT_THAT(names({.notice_files = {"/a"}, .max_wall = 2h}), ElementsAre("signal", "ec2"));
  setenv("HOLDFAST_SOURCES", "signal,file,deadline", 1);
  EXPECT_THAT(names(), ElementsAre("signal"));
  EXPECT_THAT(names({.signals = false}), IsEmpty()) << "a program that hears signals itself";
  setenv("HOLDFAST_SOURCES", "gcp,azure,cloud", 1);
  EXPECT_THAT(names({.signals = false, .cloud = false}), ElementsAre("gcp", "azure", "cloud"));
}

// The list chooses what is polled. Who narrows it would find out at the end of the machine that SIGTERM is not
// heard.
TEST_F(Sources, SignalsAreHeardWhateverTheVariablePicks) {
  setenv("HOLDFAST_SOURCES", "file", 1);
  EXPECT_THAT(names({.notice_files = {"/a"}}), ElementsAre("signal", "file"));
  EXPECT_THAT(names({.signals = false, .notice_files = {"/a"}}), ElementsAre("file"));
  testing::internal::CaptureStderr();
  names();
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("by HOLDFAST_SOURCES: file; the others are off, and signals are heard in any case"));
}

TEST_F(Sources, AnUnknownNameIsRefusedWithThoseThereAre) {
  for (const char* const wrong : {"ec3", "signal,", ",signal", "signal;file", "EC2", "signal, file"}) {
    setenv("HOLDFAST_SOURCES", wrong, 1);
    try {
      names();
      ADD_FAILURE() << wrong;
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr("there are signal, file, deadline, cloud, ec2, gcp, azure"));
    }
  }
}

TEST_F(Sources, OneProcessOfAHostAsksTheProvider) {
  for (const char* const variable : {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"}) {
    setenv(variable, "0", 1);
    EXPECT_THAT(names(), ElementsAre("signal", "cloud")) << variable;
    setenv(variable, "3", 1);
    EXPECT_THAT(names(), ElementsAre("signal")) << variable;
    setenv("HOLDFAST_SOURCES", "ec2,signal", 1);
    EXPECT_THAT(names(), ElementsAre("signal")) << variable;
    unsetenv("HOLDFAST_SOURCES");
    unsetenv(variable);
  }
}

TEST_F(Sources, WhatIsSwitchedOffIsSaid) {
  const auto said = [&] {
    testing::internal::CaptureStderr();
    names();
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(said(), Not(HasSubstr("are off")));
  setenv("HOLDFAST_SOURCES", "signal,deadline", 1);
  EXPECT_THAT(
      said(),
      HasSubstr("holdfast: interruption sources by HOLDFAST_SOURCES: signal,deadline; the others are off"));
  unsetenv("HOLDFAST_SOURCES");
  setenv("LOCAL_RANK", "1", 1);
  EXPECT_THAT(said(), HasSubstr("holdfast: the provider's notices are heard by another process of this host "
                                "(LOCAL_RANK=1)"));
  unsetenv("LOCAL_RANK");
  setenv("HOLDFAST_SOURCES", "ec2", 1);
  setenv("AWS_EC2_METADATA_DISABLED", "True", 1);
  EXPECT_THAT(said(), HasSubstr("holdfast: EC2's notices are off: AWS_EC2_METADATA_DISABLED=True"));
}

TEST_F(Sources, AWrongAddressEndsTheStart) {
  setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "ftp://host", 1);
  EXPECT_THROW(names(), UsageError);
  EXPECT_THAT(names({.cloud = false}), ElementsAre("signal"));
}

TEST_F(Sources, ADisabledServiceIsNoSourceEvenWhenNamed) {
  setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
  setenv("HOLDFAST_SOURCES", "ec2", 1);
  EXPECT_THAT(names(), ElementsAre("signal"));
}

}}  // namespace holdfast
