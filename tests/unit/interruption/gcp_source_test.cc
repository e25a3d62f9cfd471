#include "holdfast/interruption/gcp_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "holdfast/base/error.h"
#include "holdfast/cli/rehearsal/metadata_server.h"
#include "holdfast/interruption/monitor.h"
#include "support/fake_clock.h"

namespace holdfast {
namespace {

using namespace std::chrono_literals;
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
    if (server_.wait_for_requests(MetadataServer::kGcpPreempted, 2, 60s)) server_.announce({});
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

TEST_F(Gcp, ARefusalSwitchesTheSourceOff) {
  server_.answer(MetadataServer::kGcpPreempted, {.status = 403});
  EXPECT_THROW(poll(), Error);
}

TEST_F(Gcp, TheEndOfTheMonitorEndsAWait) {
  const auto begin = std::chrono::steady_clock::now();
  {
    Monitor monitor;
    monitor.add(std::make_unique<GcpSource>(
        Clock::real(), GcpOptions{.endpoint = server_.endpoint(), .request_limit = 60s, .wait = 600s}));
    monitor.start();
    ASSERT_TRUE(server_.wait_for_requests(MetadataServer::kGcpPreempted, 2, 60s));
    monitor.stop();
    EXPECT_FALSE(monitor.pending());
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 300s);
}

}  // namespace
}  // namespace holdfast
