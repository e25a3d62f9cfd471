#include "holdfast/interruption/internal/announced_end.h"

#include <gtest/gtest.h>

#include "support/fake_clock.h"

namespace holdfast::internal {
namespace {

using namespace std::chrono_literals;

TEST(AnnouncedEnd, WhatDidNotArriveIsToldAgainOnce) {
  test::FakeClock clock;
  AnnouncedEnd end(clock, "test", 110s);
  const SteadyTime when = clock.now() + 60s;
  ASSERT_TRUE(end.coming(when, false, "words"));
  EXPECT_FALSE(end.coming(when, false, "words"));
  end.tell_again();
  clock.advance(2s);
  const auto again = end.coming(when, false, "words");
  ASSERT_TRUE(again);
  EXPECT_EQ(again->deadline, when);
  EXPECT_FALSE(end.coming(when, false, "words"));
}

TEST(AnnouncedEnd, ClocksThatDriftMakeNoNews) {
  test::FakeClock clock;
  AnnouncedEnd end(clock, "test", 110s);
  const SteadyTime when = clock.now() + 60s;
  ASSERT_TRUE(end.coming(when, false, "words"));
  EXPECT_FALSE(end.coming(when - 900ms, false, "words"));
  EXPECT_TRUE(end.coming(when - 1100ms, false, "words"));
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

}  // namespace
}  // namespace holdfast::internal
