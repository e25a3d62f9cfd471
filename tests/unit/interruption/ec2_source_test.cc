// What EC2's source makes of the notices that the service gives, by actions, the older form, risks and
// maintenance.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "holdfast/interruption/service_time.h"
#include "unit/interruption/ec2_cases.h"

namespace holdfast { namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

TEST_F(Ec2, NothingComesOf404ForEver) {
  EXPECT_THAT(polls(40), IsEmpty());
  EXPECT_EQ(server_.requests(MetadataServer::kEc2Action), 40);
  EXPECT_EQ(server_.requests(MetadataServer::kEc2Token), 1);
  EXPECT_GE(server_.requests(MetadataServer::kEc2Rebalance), 10);
  EXPECT_LE(server_.requests(), 40 * 2 + 5) << "two requests a poll";
  EXPECT_EQ(source_->figures().polls, 40);
  EXPECT_EQ(source_->figures().failures, 0);
  EXPECT_EQ(source_->figures().blind, 0s);
  EXPECT_EQ(source_->interval(), 2s);
  EXPECT_TRUE(source_->may_block());
}

TEST_F(Ec2, AnAnnouncedTerminationIsADeadlineAndToldOnce) {
  polls(3);
  server_.announce({.in = 120s});
  const SteadyTime end = clock_.now() + 120s;
  const auto news = poll();
  ASSERT_THAT(news, SizeIs(1));
  EXPECT_EQ(news[0].source, "ec2");
  EXPECT_EQ(news[0].kind, NoticeKind::deadline);
  EXPECT_EQ(news[0].deadline, end);
  EXPECT_EQ(news[0].seen, clock_.now());
  EXPECT_FALSE(news[0].hibernates);
  EXPECT_THAT(news[0].text, HasSubstr("EC2 announces terminate at 2025-"));
  EXPECT_THAT(polls(80), IsEmpty()) << "also when the time has passed and the machine lives";
}

TEST_F(Ec2, EveryActionButHibernateEndsTheMachine) {
  for (const char* const action : {"terminate", "stop", "unheard-of", ""}) {
    server_.announce({.in = 60s, .action = action});
    const auto news = poll();
    ASSERT_THAT(news, SizeIs(1)) << action;
    EXPECT_EQ(news[0].kind, NoticeKind::deadline);
    EXPECT_FALSE(news[0].hibernates);
    server_.withdraw();
    EXPECT_THAT(poll(), SizeIs(1));
  }
  server_.announce({.in = 0s, .action = "hibernate"});
  const auto news = poll();
  ASSERT_THAT(news, SizeIs(1));
  EXPECT_TRUE(news[0].hibernates);
}

TEST_F(Ec2, ATimeThatCannotBeBelievedIsTwoMinutesLessTen) {
  for (const char* const time :
       {R"("2011-01-01T00:00:00Z")", R"("2225-01-01T00:00:00Z")", R"("soon")", R"("")", "12", "{}", "null"}) {
    server_.answer(MetadataServer::kEc2Action,
                   {.body = R"({"action": "stop", "time": )" + std::string(time) + "}"});
    const auto news = poll();
    ASSERT_THAT(news, SizeIs(1)) << time;
    EXPECT_EQ(news[0].deadline, clock_.now() + 110s) << time;
    EXPECT_THAT(polls(3), IsEmpty()) << "the time is counted from the first sight";
    server_.forget(MetadataServer::kEc2Action);
    EXPECT_THAT(poll(), SizeIs(1));
  }
  for (const char* const body : {R"({"action": "stop"})", "{}", R"({"action": 5, "time": []})"}) {
    server_.answer(MetadataServer::kEc2Action, {.body = body});
    const auto news = poll();
    ASSERT_THAT(news, SizeIs(1)) << body;
    EXPECT_EQ(news[0].deadline, clock_.now() + 110s) << body;
    server_.forget(MetadataServer::kEc2Action);
    EXPECT_THAT(poll(), SizeIs(1));
  }
}

TEST_F(Ec2, OfTimesThatSlideTheEarliestCounts) {
  int polled = 0;
  server_.answer(MetadataServer::kEc2Action, {.make_body = [&] {
                   const Duration left = 60s + 10s * polled++;
                   return R"({"action": "terminate", "time": ")" + in_words(left) + R"("})";
                 }});
  const auto news = poll();
  ASSERT_THAT(news, SizeIs(1));
  EXPECT_EQ(news[0].deadline, clock_.now() + 60s);
  EXPECT_THAT(polls(20), IsEmpty());

  const SteadyTime earlier = clock_.now() + 2s + 5s;
  server_.answer(MetadataServer::kEc2Action,
                 {.body = R"({"action": "terminate", "time": ")" + in_words(7s) + R"("})"});
  const auto again = poll();
  ASSERT_THAT(again, SizeIs(1));
  EXPECT_EQ(again[0].deadline, earlier);
}

TEST_F(Ec2, ATimeThatChangesAfterItWasOutlivedIsAnnouncedAnew) {
  server_.announce({.in = 120s});
  EXPECT_THAT(poll(), SizeIs(1));
  EXPECT_THAT(poll(179s), IsEmpty());
  server_.announce({.in = 302s});
  const auto news = poll();
  ASSERT_THAT(news, SizeIs(2));
  EXPECT_EQ(news[0].kind, NoticeKind::withdrawn);
  EXPECT_EQ(news[1].kind, NoticeKind::deadline);
  EXPECT_EQ(news[1].deadline, clock_.now() + 300s);
  EXPECT_THAT(polls(5), IsEmpty());
}

TEST_F(Ec2, TheServicesOwnClockCorrectsOneThatIsSlow) {
  clock_.shift_wall(-10min);
  const std::string date = "Sun, 15 Jun 2025 15:06:42 GMT";
  server_.answer(MetadataServer::kEc2Action, {.body = R"({"action": "stop", "time": "2025-06-15T15:08:42Z"})",
                                              .headers = {{"Date", date}}});
  const auto news = poll();
  ASSERT_THAT(news, SizeIs(1));
  EXPECT_EQ(news[0].deadline, clock_.now() + 120s);
}

TEST_F(Ec2, WhatIsWithdrawnIsToldAndMayComeAgain) {
  server_.announce({.in = 120s});
  EXPECT_THAT(poll(), SizeIs(1));
  EXPECT_THAT(polls(30), IsEmpty());
  server_.withdraw();
  const auto news = poll();
  ASSERT_THAT(news, SizeIs(1));
  EXPECT_EQ(news[0].kind, NoticeKind::withdrawn);
  EXPECT_EQ(news[0].deadline, std::nullopt);
  EXPECT_THAT(polls(10), IsEmpty());
  server_.announce({.in = 120s});
  EXPECT_THAT(poll(), SizeIs(1));
}

TEST_F(Ec2, AServiceThatFailsWithdrawsNothing) {
  server_.announce({.in = 120s});
  EXPECT_THAT(poll(), SizeIs(1));
  server_.answer(MetadataServer::kEc2Action, {.status = 500});
  EXPECT_THAT(polls(5), IsEmpty());
  server_.answer(MetadataServer::kEc2Action, {.body = "?"});
  EXPECT_THAT(polls(5), IsEmpty());
}

TEST_F(Ec2, TheOlderFormIsHeardAlone) {
  server_.answer(MetadataServer::kEc2Termination, {.body = in_words(100s)});
  const auto news = polls(5);
  ASSERT_THAT(news, SizeIs(1));
  EXPECT_EQ(news[0].kind, NoticeKind::deadline);
  EXPECT_THAT(polls(20), IsEmpty()) << "no withdrawal while it stands";
  server_.answer(MetadataServer::kEc2Termination, {.body = "not a time"});
  EXPECT_THAT(poll(), SizeIs(1));
}

TEST_F(Ec2, GarbageAsTheActionMakesTheOlderFormCount) {
  server_.answer(MetadataServer::kEc2Action, {.body = "<html>"});
  server_.answer(MetadataServer::kEc2Termination, {.body = in_words(100s)});
  EXPECT_THAT(poll(), SizeIs(1));
}

TEST_F(Ec2, RiskIsToldOnceAndAnActionAfterItCounts) {
  server_.recommend_rebalance();
  auto news = poll();
  ASSERT_THAT(news, SizeIs(1));
  EXPECT_EQ(news[0].kind, NoticeKind::at_risk);
  EXPECT_EQ(news[0].deadline, std::nullopt);
  EXPECT_THAT(polls(20), IsEmpty());
  server_.announce({.in = 120s});
  news = poll();
  ASSERT_THAT(news, SizeIs(1));
  EXPECT_EQ(news[0].kind, NoticeKind::deadline);
}

TEST_F(Ec2, AGroupThatEndsTheInstanceIsARisk) {
  server_.answer(MetadataServer::kEc2Lifecycle, {.body = "InService"});
  EXPECT_THAT(polls(10), IsEmpty());
  server_.answer(MetadataServer::kEc2Lifecycle, {.body = "Terminated"});
  const auto news = polls(10);
  ASSERT_THAT(news, SizeIs(1));
  EXPECT_EQ(news[0].kind, NoticeKind::at_risk);
}

TEST_F(Ec2, ScheduledMaintenanceIsARiskWhenItIsNear) {
  const auto event = [&](Duration ahead, const char* state) {
    return R"([{"NotBefore": ")" +
           format_http_date(clock_.wall_now() + std::chrono::duration_cast<WallTime::duration>(ahead))
               .substr(5) +
           R"(", "Code": "system-reboot", "State": ")" + state + R"(", "EventId": "instance-event-1"}])";
  };
  server_.answer(MetadataServer::kEc2Maintenance, {.body = event(25h, "completed")});
  EXPECT_THAT(polls(8), IsEmpty());
  server_.answer(MetadataServer::kEc2Maintenance, {.body = event(25h, "active")});
  EXPECT_THAT(polls(8), IsEmpty()) << "days ahead";
  clock_.advance(24h + 50min);
  const auto news = polls(8);
  ASSERT_THAT(news, SizeIs(1));
  EXPECT_EQ(news[0].kind, NoticeKind::at_risk);
  EXPECT_THAT(news[0].text, HasSubstr("system-reboot at 2025-"));
}

TEST_F(Ec2, AListOfMaintenanceMayBeLongAndOneThatIsTooLongIsSaidOnce) {
  const std::string near = R"({"NotBefore": ")" + format_http_date(clock_.wall_now() + 5min).substr(5) +
                           R"(", "Code": "system-reboot", "State": "active", "EventId": "event-1"})";
  const std::string list = "[" + near + std::string(100'000, ' ') + "]";
  server_.answer(MetadataServer::kEc2Maintenance, {.body = list});
  EXPECT_THAT(polls(8), SizeIs(1));
  server_.answer(MetadataServer::kEc2Maintenance, {.body = list + std::string(1u << 20, ' ')});
  testing::internal::CaptureStderr();
  EXPECT_THAT(polls(12), IsEmpty());
  const std::string log = testing::internal::GetCapturedStderr();
  const auto said = log.find("blind for events/maintenance/scheduled of the metadata service");
  ASSERT_NE(said, std::string::npos) << log;
  EXPECT_EQ(log.find("blind for", said + 1), std::string::npos) << log;
  EXPECT_EQ(source_->figures().failures, 0);
  expect_that_it_hears();
}

// Each costs a second where nobody answers.
TEST_F(Ec2, WhileTheActionCannotBeAskedNothingElseIs) {
  server_.answer(MetadataServer::kEc2Action, {.status = 500});
  EXPECT_THAT(polls(6), IsEmpty());
  EXPECT_EQ(source_->figures().failures, 6);
  EXPECT_EQ(server_.requests(), 6 + server_.requests(MetadataServer::kEc2Token));
}

TEST_F(Ec2, WhatTheOtherPathsFailAtIsNoFailure) {
  for (const auto path : {MetadataServer::kEc2Termination, MetadataServer::kEc2Rebalance,
                          MetadataServer::kEc2Lifecycle, MetadataServer::kEc2Maintenance}) {
    server_.answer(path, {.status = 500});
  }
  EXPECT_THAT(polls(10), IsEmpty());
  for (const auto path : {MetadataServer::kEc2Termination, MetadataServer::kEc2Rebalance,
                          MetadataServer::kEc2Lifecycle, MetadataServer::kEc2Maintenance}) {
    server_.answer(path, {.body = "]["});
  }
  EXPECT_THAT(polls(10), IsEmpty());
  EXPECT_EQ(source_->figures().failures, 0);
  expect_that_it_hears();
}

}}  // namespace holdfast
