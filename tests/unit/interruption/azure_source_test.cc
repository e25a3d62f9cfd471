#include "holdfast/interruption/azure_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "holdfast/cli/rehearsal/metadata_server.h"
#include "holdfast/interruption/service_time.h"
#include "support/fake_clock.h"

namespace holdfast { namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

class Azure : public testing::Test {
 protected:
  std::vector<Notice> poll(Duration later = 2s) {
    clock_.advance(later);
    return source_.poll();
  }
  nlohmann::json event(const char* type, const char* machine = "rehearsal-vm") {
    return {{"EventId", "1"},
            {"EventStatus", "Scheduled"},
            {"EventType", type},
            {"Resources", {machine}},
            {"NotBefore", format_http_date(clock_.wall_now() + 302s)}};
  }
  void list(const std::vector<nlohmann::json>& events) {
    server_.answer(MetadataServer::kAzureEvents, {.body = nlohmann::json{{"Events", events}}.dump()});
  }

  test::FakeClock clock_;
  MetadataServer server_{clock_};
  bool approve_ = false;
  AzureSource source_{
      clock_, {.endpoint = server_.endpoint(), .request_limit = 60s, .approve = [this] { return approve_; }}};
};

TEST_F(Azure, APreemptionIsADeadlineToldOnceAndMayBeWithdrawn) {
  EXPECT_THAT(poll(), IsEmpty());
  server_.announce({.in = 32s});
  auto news = poll();
  ASSERT_THAT(news, SizeIs(1));
  EXPECT_EQ(news[0].source, "azure");
  EXPECT_EQ(news[0].kind, NoticeKind::deadline);
  EXPECT_EQ(news[0].deadline, clock_.now() + 30s);
  EXPECT_THAT(poll(), IsEmpty());
  server_.withdraw();
  news = poll();
  ASSERT_THAT(news, SizeIs(1));
  EXPECT_EQ(news[0].kind, NoticeKind::withdrawn);
  EXPECT_EQ(server_.requests(MetadataServer::kAzureName), 1);
}

TEST_F(Azure, OnlyWhatNamesThisMachineCounts) {
  list({event("Preempt", "another-vm"), event("Terminate", "rehearsal-vm-2")});
  EXPECT_THAT(poll(), IsEmpty());
  list({event("Preempt", "another-vm"), event("Terminate", "REHEARSAL-vm")});
  EXPECT_THAT(poll(), SizeIs(1));
}

// A mass eviction: one answer lists the events of the whole scale set.
TEST_F(Azure, AmongTheEventsOfThousandsOfMachinesItsOwnIsHeard) {
  std::vector<nlohmann::json> events;
  const auto add = [&](std::size_t count) {
    while (events.size() < count) events.push_back(event("Preempt", "scale-set_a1b2c3d4_000042"));
  };
  for (const std::size_t count : {60, 2900}) {
    add(count);
    events.back() = event("Preempt");
    list(events);
    EXPECT_THAT(poll(), SizeIs(1)) << count;
    EXPECT_EQ(source_.figures().failures, 0);
    events.back() = event("Preempt", "another-vm");
    list(events);
    EXPECT_THAT(poll(), SizeIs(1)) << "withdrawn";
  }
}

TEST_F(Azure, AListThatIsTooLongIsBlindnessAndSaidOnce) {
  const std::string list = nlohmann::json{{"Events", {event("Preempt")}}}.dump();
  server_.answer(MetadataServer::kAzureEvents, {.body = list + std::string(1u << 20, ' ')});
  testing::internal::CaptureStderr();
  for (int i = 0; i < 5; ++i) EXPECT_THAT(poll(), IsEmpty());
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(source_.figures().failures, 5);
  const auto said = log.find("cannot be asked for interruptions: an answer of more than 1024 KiB");
  ASSERT_NE(said, std::string::npos) << log;
  EXPECT_EQ(log.find("1024 KiB", said + 80), std::string::npos) << log;
}

TEST_F(Azure, EveryTypeButFreezeEndsTheMachine) {
  for (const char* const type : {"Preempt", "Terminate", "Reboot", "Redeploy", "Unheard-of", ""}) {
    list({event(type)});
    const auto news = poll();
    ASSERT_THAT(news, SizeIs(1)) << type;
    EXPECT_EQ(news[0].kind, NoticeKind::deadline);
    EXPECT_EQ(news[0].deadline, clock_.now() + 300s);
    list({});
    EXPECT_THAT(poll(), SizeIs(1));
  }
  list({event("Freeze")});
  const auto news = poll();
  ASSERT_THAT(news, SizeIs(1));
  EXPECT_EQ(news[0].kind, NoticeKind::at_risk);
  EXPECT_EQ(news[0].stands_still, 30s);
  EXPECT_THAT(poll(), IsEmpty());
  list({});
  const auto over = poll();
  ASSERT_THAT(over, SizeIs(1));
  EXPECT_EQ(over[0].kind, NoticeKind::thawed);
}

TEST_F(Azure, ATimeThatCannotBeBelievedIsTheLeastThatAzurePromises) {
  const auto deadline_of = [&](const char* type, const char* status, const nlohmann::json& time) {
    auto said = event(type);
    said["EventStatus"] = status;
    said["NotBefore"] = time;
    list({said});
    const auto news = poll();
    const SteadyTime now = clock_.now();
    list({});
    poll();
    return news.size() == 1 && news[0].deadline ? *news[0].deadline - now : Duration(0);
  };
  EXPECT_EQ(deadline_of("Preempt", "Scheduled", "Mon, 19 Sep 2016 18:29:47 GMT"), 25s);
  EXPECT_EQ(deadline_of("Preempt", "Started", ""), 25s);
  EXPECT_EQ(deadline_of("Reboot", "Started", ""), 25s);
  EXPECT_EQ(deadline_of("Reboot", "Scheduled", nullptr), 110s);
  EXPECT_EQ(deadline_of("Terminate", "Scheduled", 5), 110s);
  EXPECT_EQ(deadline_of("Terminate", "Scheduled", "soon"), 110s);
  EXPECT_EQ(deadline_of("Terminate", "Canceled", ""), 0s);
}

TEST_F(Azure, OfSeveralEventsTheEarliestCountsAndTheNextWhenItIsGone) {
  const auto at = [&](const char* type, const char* id, Duration ahead) {
    auto said = event(type);
    said["EventId"] = id;
    said["NotBefore"] =
        format_http_date(clock_.wall_now() + std::chrono::duration_cast<WallTime::duration>(ahead));
    return said;
  };
  const auto reboot = at("Reboot", "a", 602s);
  const auto terminate = at("Terminate", "b", 1202s);
  const SteadyTime end = clock_.now() + 1202s;
  list({terminate, reboot});
  auto news = poll();
  ASSERT_THAT(news, SizeIs(1));
  EXPECT_EQ(news[0].deadline, clock_.now() + 600s);
  EXPECT_THAT(news[0].text, testing::HasSubstr("Reboot"));
  list({terminate});
  news = poll(300s);
  ASSERT_THAT(news, SizeIs(2));
  EXPECT_EQ(news[0].kind, NoticeKind::withdrawn);
  EXPECT_EQ(news[1].kind, NoticeKind::deadline);
  EXPECT_EQ(news[1].deadline, end);
  EXPECT_THAT(news[1].text, testing::HasSubstr("Terminate"));
  EXPECT_THAT(poll(), IsEmpty());
  list({});
  EXPECT_THAT(poll(), SizeIs(1));
}

TEST_F(Azure, WhatBeginsLongAfterItsTimeIsAnnouncedAnew) {
  for (const char* const type : {"Reboot", "Preempt"}) {
    auto said = event(type);
    list({said});
    EXPECT_THAT(poll(), SizeIs(1)) << type;
    EXPECT_THAT(poll(302s), IsEmpty());
    EXPECT_THAT(poll(62s), IsEmpty()) << "outlived";
    said["EventStatus"] = "Started";
    said["NotBefore"] = "";
    list({said});
    const auto news = poll(600s);
    ASSERT_THAT(news, SizeIs(2)) << type;
    EXPECT_EQ(news[1].deadline, clock_.now() + 25s);
    for (int i = 0; i < 10; ++i) EXPECT_THAT(poll(30s), IsEmpty());
    list({});
    EXPECT_THAT(poll(), SizeIs(1));
  }
}

TEST_F(Azure, AnEventIsApprovedOnlyOnRequestAndOnce) {
  server_.announce({.in = 32s});
  EXPECT_THAT(poll(), SizeIs(1));
  poll();
  EXPECT_THAT(server_.approved(), IsEmpty());
  approve_ = true;
  poll();
  poll();
  EXPECT_THAT(server_.approved(), ElementsAre("event-1"));
}

TEST_F(Azure, NothingIsApprovedWhileNothingIsComing) {
  approve_ = true;
  list({event("Freeze")});
  poll();
  poll();
  EXPECT_THAT(server_.approved(), IsEmpty());
}

TEST_F(Azure, WhatIsNoListOfEventsIsNoNotice) {
  const auto bad = event("Preempt");
  int failures = 0;
  for (const std::string& body :
       {std::string("{}"), std::string("[]"), std::string("<html>"), std::string(R"({"Events": {}})"),
        std::string(R"({"Events": [5]})"), std::string(R"({"Events": [{"EventType": "Preempt"}]})"),
        R"({"Events": []}{"Events": [)" + bad.dump() + "]}",
        R"({"Events": [)" + bad.dump() + "]," + std::string(20'000, ' ') + "}"}) {
    server_.answer(MetadataServer::kAzureEvents, {.body = body});
    EXPECT_THAT(poll(), IsEmpty()) << body.substr(0, 100);
    EXPECT_EQ(source_.figures().failures, ++failures) << body.substr(0, 100);
  }
  for (const int status : {400, 410, 429, 500}) {
    server_.answer(MetadataServer::kAzureEvents, {.status = status});
    EXPECT_THAT(poll(), IsEmpty());
    EXPECT_EQ(source_.figures().failures, ++failures);
  }
  EXPECT_EQ(source_.interval(), 8s);
  server_.forget(MetadataServer::kAzureEvents);
  server_.announce({.in = 60s});
  EXPECT_THAT(poll(), SizeIs(1));
}

TEST_F(Azure, ARefusalIsAskedAgainAfterFiveMinutesOrAQuarterOfOneOnceItHasAnswered) {
  Duration rest = 5min;
  for (const auto path : {MetadataServer::kAzureName, MetadataServer::kAzureEvents}) {
    server_.answer(path, {.status = 403});
    for (const Duration pause : std::initializer_list<Duration>{1s, 2s, 4s, 8s, rest}) {
      EXPECT_THAT(poll(pause), IsEmpty());
      EXPECT_EQ(source_.interval(), pause);
    }
    server_.forget(path);
    EXPECT_THAT(poll(rest), IsEmpty());
    EXPECT_EQ(source_.interval(), 2s);
    rest = 15s;
  }
  EXPECT_EQ(source_.figures().failures, 10);
  server_.announce({.in = 60s});
  EXPECT_THAT(poll(), SizeIs(1));
}

TEST_F(Azure, AnApprovalThatIsRefusedIsTriedAgainAfterFiveMinutes) {
  list({event("Terminate")});
  EXPECT_THAT(poll(), SizeIs(1));
  approve_ = true;
  // The path is that of the list, which stands at the first event.
  server_.next(MetadataServer::kAzureEvents,
               {.body = nlohmann::json{{"Events", {event("Terminate")}}}.dump()});
  server_.next(MetadataServer::kAzureEvents, {.status = 403});
  testing::internal::CaptureStderr();
  poll();
  for (int i = 0; i < 10; ++i) poll();
  EXPECT_EQ(server_.requests(MetadataServer::kAzureEvents), 1 + 2 + 10)
      << "ten polls, and no second approval";
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::HasSubstr("did not take the approval"));
  poll(5min);
  EXPECT_EQ(server_.requests(MetadataServer::kAzureEvents), 1 + 2 + 10 + 2);
}

TEST_F(Azure, WithoutItsNameNothingIsUnderstood) {
  server_.next(MetadataServer::kAzureName, {.status = 500});
  server_.announce({.in = 60s});
  EXPECT_THAT(poll(), IsEmpty());
  EXPECT_EQ(source_.figures().failures, 1);
  EXPECT_THAT(poll(), SizeIs(1));
}

// The service needs up to two minutes to switch itself on.
TEST_F(Azure, TheFirstAnswerMayTakeLongAndLaterOnesMayNot) {
  AzureSource source(clock_, {.endpoint = server_.endpoint(), .request_limit = 200ms, .first_limit = 60s});
  const std::string slow = R"({"Events":[]})";  // 0.6 s
  server_.next(MetadataServer::kAzureEvents, {.body = slow, .manner = Manner::drip});
  while (source.figures().polls == source.figures().failures) source.poll();
  const auto failures = source.figures().failures;
  server_.next(MetadataServer::kAzureEvents, {.body = slow, .manner = Manner::drip});
  EXPECT_THAT(source.poll(), IsEmpty());
  EXPECT_EQ(source.figures().failures, failures + 1);
}

}}  // namespace holdfast
