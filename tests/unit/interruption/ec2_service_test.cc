// EC2's source and a service that wants tokens, fails, hangs or answers nonsense: no notice that was not
// given, and the training's thread asks nobody.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <ostream>
#include <thread>

#include "holdfast/interruption/monitor.h"
#include "support/deaf_port.h"
#include "support/notice_heard.h"
#include "support/soon.h"
#include "unit/interruption/ec2_cases.h"

namespace holdfast { namespace {

using namespace std::chrono_literals;
using test::soon;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

// Forwards, and remembers who polled.
struct Witness {
  std::vector<std::thread::id> pollers;
};

class Watched final : public Source {
 public:
  Watched(std::unique_ptr<Source> source, Witness& witness) : source_(std::move(source)), witness_(witness) {}
  std::string_view name() const override { return source_->name(); }
  std::vector<Notice> poll() override {
    witness_.pollers.push_back(std::this_thread::get_id());
    return source_->poll();
  }
  Duration interval() const override { return 1ms; }
  bool may_block() const override { return source_->may_block(); }
  void cancel() override { source_->cancel(); }

 private:
  std::unique_ptr<Source> source_;
  Witness& witness_;
};

// ---- tokens ----

TEST_F(Ec2, A401IsANewTokenAndANewRequestAtOnce) {
  server_.announce({.in = 120s});
  server_.next(MetadataServer::kEc2Action, {.status = 401});
  EXPECT_THAT(poll(), SizeIs(1));
  EXPECT_EQ(server_.requests(MetadataServer::kEc2Token), 2);
  EXPECT_EQ(source_->figures().failures, 0);
}

TEST_F(Ec2, A401ForEverIsNoNoticeAndNoEnd) {
  server_.answer(MetadataServer::kEc2Action, {.status = 401});
  testing::internal::CaptureStderr();
  EXPECT_THAT(polls(6), IsEmpty());
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("status 401"));
  EXPECT_THAT(log, Not(HasSubstr("no token"))) << "it gave one";
  EXPECT_EQ(source_->figures().failures, 6);
  EXPECT_EQ(server_.requests(MetadataServer::kEc2Action), 12) << "each time once more, with a new token";
  expect_that_it_hears();
}

TEST_F(Ec2, ATokenThatEndsEarlyIsReplaced) {
  polls(3);
  server_.expire_tokens();
  server_.announce({.in = 120s});
  EXPECT_THAT(poll(), SizeIs(1));
  EXPECT_EQ(source_->figures().failures, 0);
}

TEST_F(Ec2, ATokenIsRefreshedAtNineTenthsOfItsLife) {
  poll();
  poll(5h + 23min);
  EXPECT_EQ(server_.requests(MetadataServer::kEc2Token), 1);
  poll(2min);
  EXPECT_EQ(server_.requests(MetadataServer::kEc2Token), 2);
  // None is given for a while: the old one is still good.
  poll(5h + 23min);
  server_.next(MetadataServer::kEc2Token, {.status = 500}, 1);
  EXPECT_THAT(poll(2min), IsEmpty());
  EXPECT_EQ(source_->figures().failures, 0);
}

TEST_F(Ec2, ATokenThatDoesNotArriveIsAHintAtHops) {
  server_.require_token(false);
  server_.answer(MetadataServer::kEc2Token, {.manner = Manner::no_answer});
  server_.announce({.in = 120s});
  limit_requests(400ms);
  testing::internal::CaptureStderr();
  std::vector<Notice> heard;
  for (int i = 0; i < 20 && heard.empty(); ++i) heard = poll();
  polls(2);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(heard, SizeIs(1)) << log;
  const auto hint = log.find("--http-put-response-hop-limit 2");
  ASSERT_NE(hint, std::string::npos) << log;
  EXPECT_EQ(log.find("hop-limit", hint + 30), std::string::npos) << "said once\n" << log;
}

TEST_F(Ec2, WithoutATokenAndRefusedWithoutOneItKeepsTrying) {
  server_.answer(MetadataServer::kEc2Token, {.status = 500});
  EXPECT_THAT(polls(5), IsEmpty());
  EXPECT_EQ(source_->figures().failures, 5);
  expect_that_it_hears();
}

TEST_F(Ec2, ATokenThatIsNoneIsNotSent) {
  for (const char* const token : {"", "two\r\nX-Other: header", "a b", "\x80"}) {
    server_.answer(MetadataServer::kEc2Token, {.body = token});
    EXPECT_THAT(polls(2), IsEmpty());
  }
  EXPECT_EQ(source_->figures().failures, 8);
  expect_that_it_hears();
}

// ---- a service that misbehaves ----

TEST_F(Ec2, OneThatHasOnlyRefusedIsAskedAgainAfterFiveMinutes) {
  for (const auto path : {MetadataServer::kEc2Action, MetadataServer::kEc2Token}) {
    server_.answer(path, {.status = 403});
    source_ = std::make_unique<Ec2Source>(
        clock_, Ec2Options{.endpoint = server_.endpoint(), .request_limit = kPatientWithEc2});
    testing::internal::CaptureStderr();
    for (const Duration pause : std::initializer_list<Duration>{1s, 2s, 4s, 8s, 5min, 5min}) {
      EXPECT_THAT(poll(pause), IsEmpty());
      EXPECT_EQ(source_->interval(), pause);
    }
    const std::string log = testing::internal::GetCapturedStderr();
    EXPECT_THAT(log, testing::HasSubstr("--http-endpoint enabled"));
    const auto blind = log.find("blind for");
    ASSERT_NE(blind, std::string::npos) << log;
    EXPECT_NE(log.find("every 5m", blind), std::string::npos) << log;
    EXPECT_EQ(log.find("blind for", blind + 10), std::string::npos) << "said once\n" << log;
    EXPECT_EQ(source_->figures().failures, 6);
    server_.forget(path);
    server_.announce({.in = 20min});
    EXPECT_THAT(poll(5min), SizeIs(1));
    server_.withdraw();
    poll();
  }
}

// A notice comes two minutes ahead.
TEST_F(Ec2, OneThatHasAnsweredIsNeverLeftAloneForMoreThanAQuarterMinute) {
  EXPECT_THAT(poll(), IsEmpty());
  server_.answer(MetadataServer::kEc2Action, {.status = 403});
  for (const Duration pause : std::initializer_list<Duration>{1s, 2s, 4s, 8s, 15s, 15s}) {
    EXPECT_THAT(poll(pause), IsEmpty());
    EXPECT_EQ(source_->interval(), pause);
  }
  server_.forget(MetadataServer::kEc2Action);
  server_.announce({.in = 120s});
  EXPECT_THAT(poll(15s), SizeIs(1));
  EXPECT_EQ(source_->interval(), 2s);
}

TEST_F(Ec2, ARefusedTokenCostsASecond) {
  EXPECT_THAT(poll(), IsEmpty());
  server_.next(MetadataServer::kEc2Token, {.status = 403});
  EXPECT_THAT(poll(6h), IsEmpty());
  EXPECT_EQ(source_->figures().failures, 1);
  EXPECT_EQ(source_->interval(), 1s);
  server_.announce({.in = 120s});
  EXPECT_THAT(poll(1s), SizeIs(1));
}

TEST_F(Ec2, WhatIsRefusedBesideTheActionIsAskedAgainAfterFiveMinutes) {
  server_.answer(MetadataServer::kEc2Rebalance, {.status = 403});
  EXPECT_THAT(polls(40), IsEmpty());
  EXPECT_EQ(server_.requests(MetadataServer::kEc2Rebalance), 1);
  EXPECT_EQ(source_->figures().failures, 0);
  EXPECT_EQ(source_->interval(), 2s);
  server_.forget(MetadataServer::kEc2Rebalance);
  server_.recommend_rebalance();
  poll(5min);
  EXPECT_THAT(polls(4), SizeIs(1));
}

TEST_F(Ec2, BlindnessIsSaidLoudlyOnceAnEpisode) {
  source_ = std::make_unique<Ec2Source>(
      clock_,
      Ec2Options{.endpoint = server_.endpoint(), .request_limit = kPatientWithEc2, .blind_after = 90s});
  const auto count = [](const std::string& log, const char* words) {
    std::size_t found = 0;
    for (auto at = log.find(words); at != std::string::npos; at = log.find(words, at + 1)) ++found;
    return found;
  };
  const auto log_of = [&](int polls) {
    testing::internal::CaptureStderr();
    for (int i = 0; i < polls; ++i) EXPECT_THAT(poll(10s), IsEmpty());
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(log_of(1), "");
  server_.answer(MetadataServer::kEc2Action, {.status = 500});
  EXPECT_EQ(count(log_of(8), "blind"), 0U) << "80 s";
  EXPECT_EQ(source_->figures().blind_now, 80s);
  EXPECT_EQ(source_->figures().why, "status 500");
  const std::string log = log_of(200);
  EXPECT_EQ(count(log, "warning: blind for 1m 30s: EC2's metadata service"), 1U) << log;
  EXPECT_EQ(count(log, "status 500"), 1U) << log;
  server_.forget(MetadataServer::kEc2Action);
  EXPECT_EQ(count(log_of(1), "answers again; a notice of the last 34m 50s is seen only now"), 1U);
  EXPECT_EQ(source_->figures().blind_now, 0s);
  EXPECT_EQ(source_->figures().why, "");
  server_.answer(MetadataServer::kEc2Action, {.status = 500});
  EXPECT_EQ(count(log_of(20), "warning: blind for"), 1U) << "another episode";
}

struct Misbehaviour {
  const char* name;
  ScriptedAnswer answer;
};

void PrintTo(const Misbehaviour& misbehaviour, std::ostream* stream) { *stream << misbehaviour.name; }

class Ec2Misbehaves : public Ec2, public testing::WithParamInterface<Misbehaviour> {};

TEST_P(Ec2Misbehaves, WithoutANoticeOrAnEnd) {
  server_.answer(MetadataServer::kEc2Action, GetParam().answer);
  for (const Duration pause : {1s, 2s, 4s, 8s, 8s}) {
    EXPECT_THAT(poll(), IsEmpty());
    EXPECT_EQ(source_->interval(), pause) << "asked less and less often";
  }
  EXPECT_EQ(source_->figures().polls, 5);
  EXPECT_EQ(source_->figures().failures, 5);
  EXPECT_GE(source_->figures().blind, 10s);
  EXPECT_EQ(server_.requests("/elsewhere"), 0);
  expect_that_it_hears();
  EXPECT_EQ(source_->interval(), 2s);
  const Duration blind = source_->figures().blind;
  poll();
  EXPECT_EQ(source_->figures().blind, blind) << "it sees again";
}

INSTANTIATE_TEST_SUITE_P(
    All, Ec2Misbehaves,
    testing::Values(Misbehaviour{"Status429", {.status = 429}}, Misbehaviour{"Status500", {.status = 500}},
                    Misbehaviour{"Status503", {.status = 503, .body = "<html>busy</html>"}},
                    Misbehaviour{"Redirect", {.status = 302, .headers = {{"Location", "/elsewhere"}}}},
                    Misbehaviour{"Garbage", {.body = "\x01\xff<html>{"}},
                    Misbehaviour{"Nothing", {.body = ""}},
                    Misbehaviour{"OneMebibyte",
                                 {.body = std::string(1u << 20, ' ') + R"({"action": "stop"})"}},
                    Misbehaviour{"AList", {.body = R"([{"action": "stop"}])"}},
                    Misbehaviour{"ANumber", {.body = "5"}}, Misbehaviour{"AText", {.body = R"("terminate")"}},
                    Misbehaviour{"TwoObjects", {.body = R"({"action": "stop"}{"action": "terminate"})"}},
                    Misbehaviour{"HiddenEnd", {.body = std::string("{}\0", 3)}}),
    [](const auto& info) { return info.param.name; });

// Its second is short here; what is not answered in it is the same failure whatever else is slow.
class Ec2Hangs : public Ec2, public testing::WithParamInterface<Misbehaviour> {};

TEST_P(Ec2Hangs, AndIsLeftAlone) {
  limit_requests(100ms);
  server_.answer(MetadataServer::kEc2Action, GetParam().answer);
  EXPECT_THAT(poll(), IsEmpty());
  EXPECT_EQ(source_->figures().failures, 1);
  expect_that_it_hears();
}

INSTANTIATE_TEST_SUITE_P(
    All, Ec2Hangs,
    testing::Values(Misbehaviour{"BeforeItAnswers", {.manner = Manner::no_answer}},
                    Misbehaviour{"InTheBody",
                                 {.body = R"({"action": "stop"})", .manner = Manner::half_a_body}},
                    Misbehaviour{"Dripping", {.body = R"({"action": "stop"})", .manner = Manner::drip}}),
    [](const auto& info) { return info.param.name; });

TEST_F(Ec2, APortThatTakesNoConnectionIsLeftAlone) {
  const test::DeafPort port;
  Ec2Source source(clock_, {.endpoint = port.endpoint(), .request_limit = 50ms});
  EXPECT_THAT(source.poll(), IsEmpty());
  EXPECT_EQ(source.figures().failures, 1);
  EXPECT_EQ(source.interval(), 1s);
}

TEST_F(Ec2, APortThatRefusesIsLeftAlone) {
  std::string endpoint;
  {
    const test::DeafPort port;
    endpoint = port.endpoint();
  }
  Ec2Source source(clock_, {.endpoint = endpoint, .request_limit = kPatientWithEc2});
  EXPECT_THAT(source.poll(), IsEmpty());
  EXPECT_EQ(source.figures().failures, 1);
}

TEST_F(Ec2, AProxyOfTheEnvironmentIsNotAsked) {
  const test::DeafPort nobody;
  setenv("http_proxy", nobody.endpoint().c_str(), 1);
  setenv("ALL_PROXY", nobody.endpoint().c_str(), 1);
  server_.announce({.in = 120s});
  EXPECT_THAT(poll(), SizeIs(1));
  unsetenv("http_proxy");
  unsetenv("ALL_PROXY");
}

// ---- threads ----

TEST_F(Ec2, StartNeitherAsksNorWaits) {
  server_.answer(MetadataServer::kEc2Token, {.manner = Manner::no_answer});
  Monitor monitor;
  monitor.add(std::move(source_));
  const auto begin = std::chrono::steady_clock::now();
  monitor.start();  // the first request takes a minute
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kPatientWithEc2 / 2);
  ASSERT_TRUE(soon([&] { return server_.requests(MetadataServer::kEc2Token) >= 1; }));
  monitor.stop();  // and is ended
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kPatientWithEc2 / 2);
}

TEST_F(Ec2, TheTrainingThreadMakesNoRequest) {
  Witness witness;
  Monitor monitor(clock_);
  monitor.add(std::make_unique<Watched>(std::move(source_), witness));
  monitor.start();
  ASSERT_TRUE(soon([&] { return server_.requests(MetadataServer::kEc2Action) >= 20; }));
  server_.announce({.in = 120s});
  ASSERT_TRUE(test::heard_soon(monitor));
  EXPECT_FALSE(monitor.stop_requested());
  EXPECT_THAT(monitor.reason(), testing::StartsWith("EC2 announces")) << "by the action or by the older form";
  monitor.stop();
  EXPECT_GE(witness.pollers.size(), 20u);
  EXPECT_THAT(witness.pollers, testing::Each(Not(std::this_thread::get_id())));
  EXPECT_EQ(server_.connections(), 1) << "one thread, one connection";
}

}}  // namespace holdfast
