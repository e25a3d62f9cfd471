#include "holdfast/metrics/meter.h"

#include <gtest/gtest.h>

#include "support/fake_clock.h"

namespace holdfast { namespace {

using namespace std::chrono_literals;
using test::FakeClock;

TEST(Meter, KnowsNothingBeforeTheFirstStep) {
  FakeClock clock;
  Meter meter(clock);
  EXPECT_EQ(meter.per_second(), 0);
  EXPECT_EQ(meter.time_left(100), std::nullopt);
  meter.step(64);
  EXPECT_EQ(meter.per_second(), 0) << "nobody knows when the first one began";
}

TEST(Meter, SamplesPerSecondOfWork) {
  FakeClock clock;
  Meter meter(clock);
  meter.begin();
  for (int i = 0; i < 10; ++i) {
    clock.advance(500ms);
    meter.step(64);
  }
  EXPECT_DOUBLE_EQ(meter.per_second(), 128);
  EXPECT_EQ(meter.time_left(1280), Duration(10s));
  EXPECT_EQ(meter.time_left(0), Duration(0s));
}

TEST(Meter, PausesDoNotCount) {
  FakeClock clock;
  Meter meter(clock);
  meter.begin();
  for (int i = 0; i < 4; ++i) {
    clock.advance(1s);
    meter.step(10);
  }
  meter.pause();
  clock.advance(1h);
  meter.begin();
  clock.advance(1s);
  meter.step(10);
  EXPECT_DOUBLE_EQ(meter.per_second(), 10);
}

TEST(Meter, AfterAPauseTheFirstStepOnlyOpensTheWindow) {
  FakeClock clock;
  Meter meter(clock);
  meter.begin();
  clock.advance(1s);
  meter.step(10);
  meter.pause();
  clock.advance(1h);
  meter.step(10);
  EXPECT_DOUBLE_EQ(meter.per_second(), 10);
  clock.advance(1s);
  meter.step(10);
  EXPECT_DOUBLE_EQ(meter.per_second(), 10);
}

TEST(Meter, FollowsAChangeOfSpeed) {
  FakeClock clock;
  Meter meter(clock);
  meter.begin();
  for (int i = 0; i < 1000; ++i) {
    clock.advance(1s);
    meter.step(10);
  }
  for (int i = 0; i < 100; ++i) {
    clock.advance(1s);
    meter.step(20);
  }
  EXPECT_DOUBLE_EQ(meter.per_second(), 20) << "the window holds the last hundred steps";
  for (int i = 0; i < 400; ++i) {
    clock.advance(10ms);
    meter.step(20);
  }
  EXPECT_LT(meter.per_second(), 2000) << "and at least five seconds";
  for (int i = 0; i < 200; ++i) {
    clock.advance(10ms);
    meter.step(20);
  }
  EXPECT_NEAR(meter.per_second(), 2000, 1e-6);
}

TEST(Meter, AnAbsurdTimeLeftIsNone) {
  FakeClock clock;
  Meter meter(clock);
  meter.begin();
  clock.advance(24h);
  meter.step(1);
  EXPECT_EQ(meter.time_left(1e18), std::nullopt);
}

}}  // namespace holdfast
