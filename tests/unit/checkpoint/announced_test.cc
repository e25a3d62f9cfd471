// The ends that this process hears of, and those that other ranks' votes tell, are one announcement.
#include "holdfast/checkpoint/internal/announced.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "support/fake_clock.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using internal::Announced;

class AnnouncedEnd : public testing::Test {
 protected:
  SteadyTime in(Duration time) { return clock.now() + time; }
  void own(Duration left, bool hibernates = false) {
    monitor.post({.source = "ec2",
                  .kind = NoticeKind::deadline,
                  .deadline = in(left),
                  .text = "own",
                  .hibernates = hibernates});
  }
  void others(Duration left, bool guessed = false) {
    announced.others_end(Notice{.source = "another rank",
                                .kind = NoticeKind::deadline,
                                .deadline = in(left),
                                .text = "others'",
                                .guessed = guessed,
                                .seen = clock.now()});
  }
  void others_stop(std::optional<SteadyTime> deadline = {}) {
    announced.others_stop({.source = "another rank",
                           .kind = NoticeKind::stop,
                           .deadline = deadline,
                           .text = "rank 1 was told to stop",
                           .seen = clock.now()});
  }

  FakeClock clock;
  Monitor monitor{clock};
  Announced announced{monitor};
};

TEST_F(AnnouncedEnd, TheEarliestStandsWhoeverHeardOfIt) {
  EXPECT_FALSE(announced.standing());
  own(60s);
  others(30s);
  EXPECT_EQ(announced.standing()->text, "others'");
  EXPECT_EQ(announced.deadline(), in(30s));
  own(10s);
  EXPECT_EQ(announced.standing()->text, "own");
  EXPECT_EQ(announced.time_left(clock.now()), Duration(10s));
}

TEST_F(AnnouncedEnd, OneThatHibernatesCountsOnlyAlone) {
  own(10s, true);
  others(30s);
  EXPECT_EQ(announced.standing()->text, "others'");
  announced.others_end(std::nullopt);
  EXPECT_EQ(announced.standing()->text, "own");
}

TEST_F(AnnouncedEnd, AGuessForbidsNothing) {
  others(30s, true);
  EXPECT_TRUE(announced.deadline());
  EXPECT_FALSE(announced.named_deadline());
}

TEST_F(AnnouncedEnd, WhoOutlivesItsEndIsForgotten) {
  others(30s);
  clock.advance(31s);
  announced.dismiss(clock.now() - 60s);
  EXPECT_TRUE(announced.others_end());
  announced.dismiss(clock.now());
  EXPECT_FALSE(announced.others_end());
  EXPECT_FALSE(announced.standing());
}

TEST_F(AnnouncedEnd, AStopOfAnotherRankIsAStopWithItsReason) {
  EXPECT_FALSE(announced.stop_requested());
  others_stop(in(20s));
  EXPECT_TRUE(announced.stop_requested());
  EXPECT_EQ(announced.named_deadline(), in(20s));
  EXPECT_EQ(announced.reason(), "rank 1 was told to stop");
  EXPECT_FALSE(monitor.pending()) << "its own sources said nothing";
}

TEST_F(AnnouncedEnd, OwnWordsAreTheReason) {
  others_stop();
  monitor.post({.source = "signal", .kind = NoticeKind::stop, .text = "SIGTERM"});
  EXPECT_EQ(announced.reason(), "SIGTERM");
}

// The machine has outlived it: a wait that the stop begins has all its time.
TEST_F(AnnouncedEnd, AnEndThatHadPassedBeforeAStopCountsNoMore) {
  others(30s);
  clock.advance(31s);
  others_stop();
  EXPECT_FALSE(announced.deadline());
}

TEST_F(AnnouncedEnd, NorBeforeAStopOfItsOwn) {
  others(30s);
  clock.advance(31s);
  monitor.post({.source = "signal", .kind = NoticeKind::stop, .deadline = in(25s), .text = "SIGTERM"});
  EXPECT_EQ(announced.deadline(), in(25s));
  EXPECT_EQ(announced.named_deadline(), in(25s));
}

TEST_F(AnnouncedEnd, NorAnOwnEndThatHadPassedBeforeAStopOfAnotherRank) {
  own(30s);
  clock.advance(31s);
  others_stop(in(20s));
  EXPECT_EQ(announced.deadline(), in(20s));
}

TEST_F(AnnouncedEnd, OneThatComesNearerIsTheSameNotice) {
  const SteadyTime first = clock.now();
  others(60s);
  clock.advance(1s);
  others(20s);
  EXPECT_EQ(announced.standing()->seen, first);
  EXPECT_EQ(announced.deadline(), in(20s));
  others(40s);
  EXPECT_EQ(announced.standing()->seen, clock.now()) << "what was told too early was another";
}

}}  // namespace holdfast::test
