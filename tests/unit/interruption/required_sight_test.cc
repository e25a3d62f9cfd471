// A start that is blind of a source that somebody requires.
#include "holdfast/interruption/required_sight.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "holdfast/base/error.h"
#include "holdfast/cli/rehearsal/metadata_server.h"
#include "holdfast/interruption/cloud_source.h"
#include "holdfast/interruption/ec2_source.h"
#include "holdfast/interruption/file_source.h"
#include "holdfast/interruption/sources.h"
#include "support/fake_clock.h"
#include "support/subprocess.h"

namespace holdfast { namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

class RequiredSight : public testing::Test {
 protected:
  RequiredSight() { forget_variables(); }
  ~RequiredSight() override { forget_variables(); }
  static void forget_variables() {
    for (const char* const name : {"HOLDFAST_REQUIRE_SOURCE", "LOCAL_RANK", "AWS_EC2_METADATA_DISABLED",
                                   "AWS_EC2_METADATA_SERVICE_ENDPOINT"}) {
      unsetenv(name);
    }
  }
  void listen_to_ec2() {
    monitor_.add(std::make_unique<Ec2Source>(
        clock_, Ec2Options{.endpoint = server_.endpoint(), .request_limit = 60s}));
    monitor_.start();
  }
  void listen_to_the_cloud() {
    monitor_.add(std::make_unique<CloudSource>(clock_, folder_.path()));
    monitor_.start();
  }
  // The exit code, and why the start is refused; empty: it is not.
  std::string refusal(const std::vector<std::string>& required, const SightPatience& patience = {}) {
    try {
      await_sight(
          monitor_, required, [] { return true; }, patience);
      return "";
    } catch (const Error& error) {
      return std::to_string(static_cast<int>(error.exit_code())) + " " + error.what();
    }
  }

  test::TemporaryFolder folder_;
  test::FakeClock clock_;
  MetadataServer server_{clock_};
  Monitor monitor_{clock_};
};

TEST_F(RequiredSight, WhatSeesIsWaitedForAndTheStartGoesOn) {
  listen_to_ec2();
  EXPECT_EQ(refusal({"ec2"}), "");
  EXPECT_EQ(refusal({"cloud"}), "");
  EXPECT_EQ(refusal({}), "");
}

TEST_F(RequiredSight, AServiceThatRefusesIsTriedForAWhile) {
  server_.next(MetadataServer::kEc2Token, {.status = 403});
  listen_to_ec2();
  EXPECT_EQ(refusal({"ec2"}, {.retries = 1h}), "") << "its next poll sees";
}

TEST_F(RequiredSight, AServiceThatGoesOnRefusingEndsAStartThatALaterOneMayRepeat) {
  server_.answer(MetadataServer::kEc2Token, {.status = 403});
  listen_to_ec2();
  EXPECT_THAT(refusal({"ec2"}, {.retries = 1ms}),
              AllOf(StartsWith("75 "), HasSubstr("source ec2 is required"), HasSubstr("403"),
                    HasSubstr("HOLDFAST_SOURCES")));
}

TEST_F(RequiredSight, AServiceThatFailsIsTriedForAWhile) {
  server_.answer(MetadataServer::kEc2Action, {.status = 500});
  listen_to_ec2();
  EXPECT_THAT(refusal({"ec2"}, {.retries = 1ms}), AllOf(StartsWith("75 "), HasSubstr("status 500")));
  server_.next(MetadataServer::kEc2Action, {.status = 500});
  server_.forget(MetadataServer::kEc2Action);
  EXPECT_EQ(refusal({"ec2"}, {.retries = 1h}), "") << "its next poll sees";
}

TEST_F(RequiredSight, AServiceThatHangsIsNotWaitedForForEver) {
  server_.answer(MetadataServer::kEc2Token, {.manner = Manner::no_answer});
  listen_to_ec2();
  EXPECT_THAT(refusal({"ec2"}, {.first_poll = 50ms}),
              AllOf(StartsWith("75 "), HasSubstr("not come to an answer")));
}

TEST_F(RequiredSight, AMachineOfNoProviderIsRefusedAtOnce) {
  listen_to_the_cloud();
  EXPECT_THAT(refusal({"gcp"}, {.retries = 1h, .first_poll = 1h}),
              AllOf(StartsWith("78 "), HasSubstr("firmware names none"), HasSubstr("HOLDFAST_SOURCES")));
  EXPECT_THAT(refusal({"cloud"}, {.retries = 1h, .first_poll = 1h}), HasSubstr("firmware names none"));
}

TEST_F(RequiredSight, AnotherProviderIsNotTheOne) {
  setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", server_.endpoint().c_str(), 1);
  listen_to_the_cloud();
  EXPECT_EQ(refusal({"cloud"}), "");
  EXPECT_EQ(refusal({"ec2"}), "");
  EXPECT_THAT(refusal({"gcp"}), AllOf(StartsWith("78 "), HasSubstr("there is no such source")));
}

TEST_F(RequiredSight, WhatIsSwitchedOffIsRefused) {
  setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", server_.endpoint().c_str(), 1);
  setenv("AWS_EC2_METADATA_DISABLED", "True", 1);
  listen_to_the_cloud();
  EXPECT_THAT(refusal({"ec2"}, {.retries = 1h, .first_poll = 1h}),
              AllOf(StartsWith("78 "), HasSubstr("AWS_EC2_METADATA_DISABLED")));
  EXPECT_EQ(server_.requests(), 0);
}

TEST_F(RequiredSight, ASourceThatNeedsNoNetworkSeesWhenItIsThere) {
  monitor_.add(std::make_unique<FileSource>(folder_.path() / "notice", clock_));
  monitor_.start();
  EXPECT_EQ(refusal({"file"}), "");
  EXPECT_THAT(refusal({"signal"}), HasSubstr("source signal is required"));
}

TEST_F(RequiredSight, AStopEndsTheWait) {
  server_.answer(MetadataServer::kEc2Token, {.manner = Manner::no_answer});
  listen_to_ec2();
  await_sight(monitor_, {"ec2"}, [] { return false; }, {.retries = 1h, .first_poll = 1h});
}

TEST_F(RequiredSight, TheEnvironmentAddsToTheProgram) {
  EXPECT_THAT(required_sources({}), IsEmpty());
  setenv("HOLDFAST_REQUIRE_SOURCE", "ec2,file", 1);
  EXPECT_THAT(required_sources({"file", "mine"}), ElementsAre("ec2", "file", "mine"));
  setenv("LOCAL_RANK", "1", 1);
  EXPECT_THAT(required_sources({"cloud"}), ElementsAre("file")) << "another process asks the provider";
  setenv("HOLDFAST_REQUIRE_SOURCE", "ec3", 1);
  EXPECT_THROW(required_sources({}), UsageError);
}

}}  // namespace holdfast
