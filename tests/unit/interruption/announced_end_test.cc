#include "holdfast/interruption/internal/announced_end.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "holdfast/interruption/monitor.h"
#include "support/fake_clock.h"

namespace holdfast::internal { namespace {

using namespace std::chrono_literals;
using testing::IsEmpty;
using testing::SizeIs;

class Announced : public testing::Test {
 protected:
  std::vector<Notice> coming(const std::vector<ListedEnd>& listed) {
    std::vector<Notice> news;
    end_.coming(listed, news);
    return news;
  }
  std::vector<Notice> coming(std::optional<SteadyTime> when) { return coming({{.when = when}}); }
  std::vector<Notice> nothing() {
    std::vector<Notice> news;
    end_.nothing("words", news);
    return news;
  }
  // A new end, told so that a Monitor forgets the one before.
  void expect_replaced(const std::vector<Notice>& news, SteadyTime when) {
    ASSERT_THAT(news, SizeIs(2));
    EXPECT_EQ(news[0].kind, NoticeKind::withdrawn);
    EXPECT_EQ(news[1].kind, NoticeKind::deadline);
    EXPECT_EQ(news[1].deadline, when);
    EXPECT_EQ(news[1].seen, clock_.now());
  }

  test::FakeClock clock_;
  AnnouncedEnd end_{clock_, "test", 110s};
};

TEST_F(Announced, TheServicesOwnClockCountsBeforeThisMachines) {
  const WallTime service = clock_.wall_now();
  const WallTime end = service + 120s;
  const SteadyTime in_two_minutes = clock_.now() + 120s;
  for (const Duration wrong : {Duration(100s), Duration(-100s), Duration(1h), Duration(-1h)}) {
    clock_.shift_wall(wrong);
    EXPECT_EQ(believed(end, clock_, service), in_two_minutes);
    clock_.shift_wall(-wrong);
  }
  // Its answer has no date, or one that cannot be.
  clock_.shift_wall(20s);
  EXPECT_EQ(believed(end, clock_), clock_.now() + 100s);
  EXPECT_EQ(believed(end, clock_, end + 1s), clock_.now() + 100s);
}

TEST_F(Announced, WhatDidNotArriveIsToldAgainOnce) {
  const SteadyTime when = clock_.now() + 60s;
  ASSERT_THAT(coming(when), SizeIs(1));
  EXPECT_THAT(coming(when), IsEmpty());
  end_.tell_again();
  clock_.advance(2s);
  const auto again = coming(when);
  ASSERT_THAT(again, SizeIs(1));
  EXPECT_EQ(again[0].deadline, when);
  EXPECT_THAT(coming(when), IsEmpty());
}

TEST_F(Announced, AWithdrawalThatDidNotArriveIsToldAgainOnce) {
  EXPECT_THAT(nothing(), IsEmpty());
  coming(clock_.now() + 60s);
  EXPECT_THAT(nothing(), SizeIs(1));
  EXPECT_FALSE(end_.told());
  end_.tell_again();
  EXPECT_TRUE(end_.told());
  EXPECT_THAT(nothing(), SizeIs(1));
  EXPECT_THAT(nothing(), IsEmpty());
  end_.tell_again();
  const SteadyTime later = clock_.now() + 600s;
  expect_replaced(coming(later), later);
}

TEST_F(Announced, ClocksThatDriftMakeNoNews) {
  const SteadyTime when = clock_.now() + 60s;
  ASSERT_THAT(coming(when), SizeIs(1));
  EXPECT_THAT(coming(when - 900ms), IsEmpty());
  EXPECT_THAT(coming(when - 1100ms), SizeIs(1));
}

TEST_F(Announced, TimesThatSlideGainNothingUntilTheFirstIsOutlived) {
  const SteadyTime first = clock_.now() + 30s;
  ASSERT_THAT(coming(first), SizeIs(1));
  while (clock_.now() + 1s <= first + 60s) {
    clock_.advance(1s);
    EXPECT_THAT(coming(clock_.now() + 30s), IsEmpty());
  }
  clock_.advance(1s);
  const SteadyTime second = clock_.now() + 30s;
  expect_replaced(coming(second), second);
  clock_.advance(1s);
  EXPECT_THAT(coming(clock_.now() + 30s), IsEmpty());
}

TEST_F(Announced, AnEndThatIsOutlivedAndNamesNoTimeToComeIsNoNews) {
  const SteadyTime first = clock_.now() + 30s;
  ASSERT_THAT(coming(first), SizeIs(1));
  for (int i = 0; i < 20; ++i) {
    clock_.advance(30s);
    EXPECT_THAT(coming(std::nullopt), IsEmpty());
  }
  nothing();
  ASSERT_THAT(coming(std::nullopt), SizeIs(1)) << "seen + 110 s";
  for (int i = 0; i < 20; ++i) {
    clock_.advance(30s);
    EXPECT_THAT(coming(std::nullopt), IsEmpty());
  }
}

TEST_F(Announced, WhenTheEarliestIsTakenBackTheNextOneCounts) {
  const SteadyTime sooner = clock_.now() + 300s;
  const SteadyTime later = clock_.now() + 900s;
  ASSERT_THAT(coming({{.event = "a", .when = sooner}, {.event = "b", .when = later}}), SizeIs(1));
  clock_.advance(60s);
  expect_replaced(coming({{.event = "b", .when = later}}), later);
  EXPECT_THAT(coming({{.event = "b", .when = later}}), IsEmpty());
  EXPECT_THAT(nothing(), SizeIs(1));
}

TEST_F(Announced, WhenTheEarliestIsOutlivedTheNextOneCounts) {
  const SteadyTime sooner = clock_.now() + 300s;
  const SteadyTime later = clock_.now() + 900s;
  const std::vector<ListedEnd> both{{.event = "a", .when = sooner}, {.event = "b", .when = later}};
  ASSERT_THAT(coming(both), SizeIs(1));
  clock_.advance(360s);
  EXPECT_THAT(coming(both), IsEmpty());
  clock_.advance(1s);
  expect_replaced(coming(both), later);
  // Also where that did not arrive.
  end_.tell_again();
  expect_replaced(coming(both), later);
  EXPECT_THAT(coming(both), IsEmpty());
}

TEST_F(Announced, AnEndAfterSleepHasItsOwnTime) {
  ASSERT_THAT(coming({{.when = clock_.now() + 1s, .hibernates = true}}), SizeIs(1));
  clock_.advance(10s);
  const SteadyTime end = clock_.now() + 120s;
  const auto news = coming({{.when = end}});
  expect_replaced(news, end);
  EXPECT_FALSE(news[1].hibernates);
  EXPECT_THAT(coming({{.when = end, .hibernates = true}}), IsEmpty()) << "no way back";
}

// What the run pauses for is the Monitor's; it keeps the earliest of what one source says.
TEST_F(Announced, AMonitorHearsWhatReplacesAnEndDismissedOrNot) {
  for (const bool dismissed : {true, false}) {
    Monitor monitor(clock_);
    const auto post = [&](const std::vector<Notice>& news) {
      for (const Notice& notice : news) monitor.post(notice);
    };
    AnnouncedEnd end(clock_, "test", 110s);
    std::vector<Notice> news;
    const SteadyTime first = clock_.now() + 30s;
    end.coming({{.when = first}}, news);
    post(news);
    clock_.advance(92s);
    if (dismissed) monitor.dismiss(clock_.now() - 60s);
    EXPECT_EQ(monitor.standing().has_value(), !dismissed);
    const SteadyTime second = clock_.now() + 600s;
    news.clear();
    end.coming({{.when = second}}, news);
    post(news);
    ASSERT_TRUE(monitor.standing());
    EXPECT_EQ(monitor.standing()->deadline, second);
    EXPECT_EQ(monitor.standing()->seen, clock_.now());
  }
}

TEST(AnnouncedEnd, BelievesNoTimeThatHasPassedOrIsYearsAway) {
  test::FakeClock clock;
  const WallTime wall = clock.wall_now();
  EXPECT_EQ(believed(std::nullopt, clock), std::nullopt);
  EXPECT_EQ(believed(wall, clock), std::nullopt);
  EXPECT_EQ(believed(wall + 24h * 366, clock), std::nullopt);
  EXPECT_EQ(believed(wall + 1s, clock), clock.now() + 1s);
  // The service's clock is 10 s ahead of ours.
  EXPECT_EQ(believed(wall + 60s, clock, wall + 10s), clock.now() + 50s);
  EXPECT_EQ(believed(wall + 5s, clock, wall + 10s), clock.now() + 5s);
  // Ours is ahead by so much that the time seems to have passed.
  EXPECT_EQ(believed(wall - 10s, clock, wall - 40s), clock.now() + 30s);
}

}}  // namespace holdfast::internal
