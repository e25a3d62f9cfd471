#include "holdfast/interruption/gcp_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "holdfast/base/text.h"
#include "holdfast/cli/rehearsal/metadata_server.h"
#include "holdfast/interruption/monitor.h"
#include "support/fake_clock.h"
#include "support/soon.h"

namespace holdfast { namespace {

using namespace std::chrono_literals;
using test::soon;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class Gcp : public testing::Test {
 protected:
  std::vector<Notice> poll(Duration later = 2s) {
    clock_.advance(later);
    return source_.poll();
  }
  ScriptedAnswer google(std::string body) {
    return {.body = std::move(body), .headers = {{"Metadata-Flavor", "Google"}}};
  }

  test::FakeClock clock_;
  MetadataServer server_{clock_};
  // One second is the shortest that the server can be asked to wait.
  GcpSource source_{clock_,
                    {.endpoint = server_.endpoint(), .request_limit = 60s, .wait = 1s, .late_answer = 60s}};
};

TEST_F(Gcp, WaitsForAChangeAndHearsIt) {
  EXPECT_THAT(poll(), IsEmpty());  // the first one asks how things are
  std::thread google([&] {
    if (soon([&] { return server_.requests(MetadataServer::kGcpPreempted) >= 2; })) server_.announce({});
  });
  std::vector<Notice> news;
  for (int i = 0; i < 100 && news.empty(); ++i) news = poll();
  google.join();
  ASSERT_THAT(news, SizeIs(1));
  EXPECT_EQ(news[0].source, "gcp");
  EXPECT_EQ(news[0].kind, NoticeKind::deadline);
  EXPECT_EQ(news[0].deadline, clock_.now() + 25s);
  EXPECT_EQ(source_.figures().failures, 0);

  server_.withdraw();
  news = poll();
  ASSERT_THAT(news, SizeIs(1));
  EXPECT_EQ(news[0].kind, NoticeKind::withdrawn);
}

TEST_F(Gcp, AMachineThatIsPreemptedAlreadyIsHeardAtOnce) {
  server_.announce({});
  EXPECT_THAT(poll(), SizeIs(1));
  EXPECT_EQ(server_.requests(MetadataServer::kGcpPreempted), 1);
}

TEST_F(Gcp, EveryPollArmsTheWarningOfMaintenance) {
  server_.answer(MetadataServer::kGcpMaintenance, google("MIGRATE_ON_HOST_MAINTENANCE\n"));
  EXPECT_THAT(poll(), IsEmpty()) << "a live migration loses nothing";
  EXPECT_EQ(server_.requests(MetadataServer::kGcpMaintenance), 1);
  server_.answer(MetadataServer::kGcpMaintenance, google("TERMINATE_ON_HOST_MAINTENANCE"));
  server_.answer(MetadataServer::kGcpPreempted, google("FALSE"));  // without waits
  const auto news = poll();
  ASSERT_THAT(news, SizeIs(1));
  EXPECT_EQ(news[0].kind, NoticeKind::at_risk);
  EXPECT_THAT(poll(), IsEmpty());
  server_.answer(MetadataServer::kGcpMaintenance, google("NONE"));
  EXPECT_THAT(poll(), IsEmpty());
  server_.answer(MetadataServer::kGcpMaintenance, google("TERMINATE_ON_HOST_MAINTENANCE"));
  EXPECT_THAT(poll(), SizeIs(1)) << "another event";
  EXPECT_EQ(server_.requests(MetadataServer::kGcpMaintenance), 5);
}

TEST_F(Gcp, MaintenanceThatCannotBeAskedHidesNoPreemption) {
  server_.answer(MetadataServer::kGcpMaintenance, {.status = 503});
  server_.announce({});
  EXPECT_THAT(poll(), SizeIs(1));
  EXPECT_EQ(source_.figures().failures, 0);
}

TEST_F(Gcp, WhatIsNotGooglesOrNotAnAnswerIsNoNotice) {
  for (const ScriptedAnswer& answer :
       {ScriptedAnswer{.body = "TRUE"}, ScriptedAnswer{.status = 503}, ScriptedAnswer{.status = 429},
        google("true"), google("<html>"), google(""), google(std::string(1u << 20, 'T')),
        ScriptedAnswer{.status = 302, .headers = {{"Location", "/elsewhere"}}}}) {
    server_.answer(MetadataServer::kGcpPreempted, answer);
    EXPECT_THAT(poll(), IsEmpty());
  }
  EXPECT_EQ(source_.figures().failures, 8);
  EXPECT_EQ(source_.interval(), 8s);
  EXPECT_EQ(server_.requests("/elsewhere"), 0);
  server_.forget(MetadataServer::kGcpPreempted);
  server_.announce({});
  EXPECT_THAT(poll(), SizeIs(1));
}

TEST_F(Gcp, AServerThatDoesNotWaitIsAskedNoMoreOftenThanOthers) {
  server_.answer(MetadataServer::kGcpPreempted, [&] {
    ScriptedAnswer answer = google("FALSE");
    answer.headers.emplace_back("ETag", "same");
    return answer;
  }());
  EXPECT_THAT(poll(), IsEmpty());
  EXPECT_LT(source_.interval(), 10ms) << "the next one is to wait";
  for (int i = 0; i < 5; ++i) {
    EXPECT_THAT(poll(), IsEmpty());
    EXPECT_EQ(source_.interval(), 2s);
  }
}

// GKE's metadata server stands before Google's and does not know the path.
TEST_F(Gcp, A404OnPreemptedIsBlindness) {
  server_.answer(MetadataServer::kGcpPreempted, {.status = 404});
  testing::internal::CaptureStderr();
  EXPECT_THAT(poll(), IsEmpty());
  EXPECT_THAT(poll(), IsEmpty());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("hostNetwork: true"));
  EXPECT_EQ(source_.figures().failures, 2);
  server_.forget(MetadataServer::kGcpPreempted);
  server_.announce({});
  EXPECT_THAT(poll(), SizeIs(1));
  server_.answer(MetadataServer::kGcpPreempted, {.status = 404});
  EXPECT_THAT(poll(), IsEmpty()) << "nothing is withdrawn by it";
}

TEST_F(Gcp, OneThatHasOnlyRefusedIsAskedAgainAfterFiveMinutes) {
  server_.answer(MetadataServer::kGcpPreempted, {.status = 403});
  for (const Duration pause : std::initializer_list<Duration>{1s, 2s, 4s, 8s, 5min, 5min}) {
    EXPECT_THAT(poll(pause), IsEmpty());
    EXPECT_EQ(source_.interval(), pause);
  }
  EXPECT_EQ(source_.figures().failures, 6);
  server_.forget(MetadataServer::kGcpPreempted);
  server_.announce({});
  EXPECT_THAT(poll(5min), SizeIs(1));
}

TEST_F(Gcp, MaintenanceThatIsRefusedHidesNoPreemption) {
  server_.answer(MetadataServer::kGcpMaintenance, {.status = 403});
  server_.answer(MetadataServer::kGcpUpcoming, {.status = 403});
  server_.answer(MetadataServer::kGcpPreempted, google("FALSE"));
  for (int i = 0; i < 10; ++i) EXPECT_THAT(poll(), IsEmpty());
  EXPECT_EQ(source_.figures().failures, 0);
  EXPECT_EQ(source_.interval(), 2s);
  EXPECT_EQ(server_.requests(MetadataServer::kGcpMaintenance), 1);
  server_.answer(MetadataServer::kGcpMaintenance, google("TERMINATE_ON_HOST_MAINTENANCE"));
  server_.announce({});
  server_.forget(MetadataServer::kGcpPreempted);
  EXPECT_THAT(poll(), SizeIs(1)) << "the preemption";
  EXPECT_THAT(poll(5min), SizeIs(1)) << "the maintenance, which is asked for again";
  EXPECT_EQ(server_.requests(MetadataServer::kGcpMaintenance), 2);
}

TEST_F(Gcp, UpcomingMaintenanceIsARiskWhenItIsNear) {
  server_.answer(MetadataServer::kGcpPreempted, google("FALSE"));
  const WallTime begin = clock_.wall_now() + 1h;
  server_.answer(MetadataServer::kGcpUpcoming,
                 google(R"({"can_reschedule": "true", "latest_window_start_time": "2030-01-01T00:00:00Z",
                            "maintenance_status": "PENDING", "type": "SCHEDULED", "window_start_time": ")" +
                        format_utc(begin) + "\"}"));
  testing::internal::CaptureStderr();
  EXPECT_THAT(poll(), IsEmpty()) << "an hour ahead";
  for (int i = 0; i < 40; ++i) EXPECT_THAT(poll(), IsEmpty());
  const std::string log = testing::internal::GetCapturedStderr();
  const auto said = log.find("maintenance (SCHEDULED) at " + format_utc(begin));
  ASSERT_NE(said, std::string::npos) << log;
  EXPECT_EQ(log.find("SCHEDULED", said + 20), std::string::npos) << "said once";
  const auto news = poll(50min);
  ASSERT_THAT(news, SizeIs(1));
  EXPECT_EQ(news[0].kind, NoticeKind::at_risk);
  EXPECT_THAT(poll(2min), IsEmpty());
  server_.answer(MetadataServer::kGcpUpcoming, google("{}"));
  EXPECT_THAT(poll(2min), IsEmpty());
  server_.answer(MetadataServer::kGcpUpcoming,
                 google(R"({"maintenanceStatus": "ONGOING", "windowStartTime": "2020-01-01T00:00:00Z"})"));
  EXPECT_THAT(poll(2min), SizeIs(1)) << "another one, in the words of the programming interface";
  EXPECT_EQ(source_.figures().failures, 0);
}

TEST_F(Gcp, UpcomingMaintenanceThatIsTooLongIsSaidOnce) {
  server_.answer(MetadataServer::kGcpPreempted, google("FALSE"));
  const std::string near = R"({"maintenance_status": "ONGOING", "window_start_time": "2030-01-01T00:00:00Z")";
  server_.answer(MetadataServer::kGcpUpcoming, google(near + std::string(100'000, ' ') + "}"));
  EXPECT_THAT(poll(2min), SizeIs(1));
  server_.answer(MetadataServer::kGcpUpcoming, google(near + std::string(1u << 20, ' ') + "}"));
  testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) EXPECT_THAT(poll(2min), IsEmpty());
  const std::string log = testing::internal::GetCapturedStderr();
  const auto said = log.find("blind for upcoming-maintenance of the metadata service");
  ASSERT_NE(said, std::string::npos) << log;
  EXPECT_EQ(log.find("blind for", said + 1), std::string::npos) << log;
  EXPECT_EQ(source_.figures().failures, 0);
}

TEST_F(Gcp, WhatIsNoUpcomingMaintenanceIsNothing) {
  server_.answer(MetadataServer::kGcpPreempted, google("FALSE"));
  for (const ScriptedAnswer& answer :
       {google("NONE"), google("\"NONE\""), google("{}"), google("["), google(R"(["some event"])"),
        google(R"({"error": "no notifications have been received yet, try again later"})"),
        ScriptedAnswer{.status = 503}, ScriptedAnswer{.status = 404}, ScriptedAnswer{.status = 301},
        ScriptedAnswer{.body = R"({"maintenance_status": "PENDING"})"}}) {
    server_.answer(MetadataServer::kGcpUpcoming, answer);
    EXPECT_THAT(poll(2min), IsEmpty()) << answer.status << answer.body;
  }
  EXPECT_EQ(server_.requests(MetadataServer::kGcpUpcoming), 10);
  EXPECT_EQ(source_.figures().failures, 0);
}

TEST_F(Gcp, TheEndOfTheMonitorEndsAWait) {
  const auto begin = std::chrono::steady_clock::now();
  {
    Monitor monitor;
    monitor.add(std::make_unique<GcpSource>(
        Clock::real(), GcpOptions{.endpoint = server_.endpoint(), .request_limit = 60s, .wait = 600s}));
    monitor.start();
    ASSERT_TRUE(soon([&] { return server_.requests(MetadataServer::kGcpPreempted) >= 2; }));
    monitor.stop();
    EXPECT_FALSE(monitor.pending());
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 300s);
}

}}  // namespace holdfast
