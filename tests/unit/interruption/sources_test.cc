#include "holdfast/interruption/sources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>

#include "holdfast/base/error.h"
#include "support/fake_clock.h"
#include "support/subprocess.h"

namespace holdfast {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

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
      "AWS_EC2_METADATA_DISABLED",  "AWS_EC2_METADATA_SERVICE_ENDPOINT"};
  std::map<std::string, std::string> before_;
  test::FakeClock clock_;
};

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

TEST_F(Sources, ByDefault) {
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
  EXPECT_THAT(names({.cloud = false}), ElementsAre("gcp", "azure", "cloud"));
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

TEST_F(Sources, AWrongAddressEndsTheStart) {
  setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "ftp://host", 1);
  EXPECT_THROW(names(), UsageError);
  EXPECT_THAT(names({.cloud = false}), ElementsAre("signal"));
}

TEST_F(Sources, ADisabledServiceIsNoSourceEvenWhenNamed) {
  setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
  setenv("HOLDFAST_SOURCES", "ec2", 1);
  EXPECT_THAT(names(), IsEmpty());
}

}  // namespace
}  // namespace holdfast
