// More than one end is announced, or one has passed: each that is named and still ahead forbids a save that
// cannot end before it, and one that has passed forbids nothing.
#include "noticed.h"

namespace holdfast::test { namespace {

using testing::Not;

class SeveralEnds : public Noticed {
 protected:
  SeveralEnds() {
    other.give_to(options);
    commit = 20s;
  }
  void guess(Duration left) {
    other.tell(
        {.kind = NoticeKind::deadline, .deadline = now() + left, .text = "sometime soon", .guessed = true});
  }
  Announcer other;
};

TEST_F(SeveralEnds, AGuessThatHasPassedHidesNoNamedEndAhead) {
  start_measured();
  guess(2s);
  announcer.deadline(now() + 15s);
  volume.clock.advance(3s);
  EXPECT_FALSE(step().saved);
  EXPECT_EQ(begun, 0) << "a commit takes 20 s, and 10 s are left";
  EXPECT_THAT(log.text(), HasSubstr("no time for a save of step 11"));
  announcer.stop(now() + 5s);
  EXPECT_TRUE(step().stop);
  EXPECT_EQ(run->checkpointer.finish(), 75);
  EXPECT_EQ(begun, 0);
  EXPECT_EQ(durable(), 10);
}

TEST_F(SeveralEnds, AnEndThatHasPassedHidesNoNamedEndAheadAtAStop) {
  start_measured();
  other.deadline(now() + 2s);
  announcer.deadline(now() + 20s);
  run->checkpointer.request_stop("enough");
  volume.clock.advance(3s);
  EXPECT_TRUE(step().stop);
  EXPECT_EQ(run->checkpointer.finish(), 75);
  EXPECT_EQ(begun, 0) << "a commit takes 20 s, and 15 s are left";
  EXPECT_EQ(durable(), 10);
}

TEST_F(SeveralEnds, AnEndThatHasPassedHidesNoNamedEndAheadInAnEvaluation) {
  start_measured();
  step();
  {
    const Checkpointer::EvaluationScope scope(run->checkpointer);
    other.deadline(now() + 2s);
    announcer.deadline(now() + 20s);
    volume.clock.advance(3s);
    EXPECT_FALSE(run->checkpointer.tick());
  }
  announcer.stop(now() + 5s);
  EXPECT_TRUE(step().stop);
  EXPECT_EQ(run->checkpointer.finish(), 75);
  EXPECT_EQ(begun, 0);
}

// The sleep comes first, and no write can end before it.
TEST_F(SeveralEnds, AnEndHidesNoNamedSleepAhead) {
  start_measured();
  guess(10min);
  announcer.deadline(now() + 15s, true);
  EXPECT_FALSE(step().saved);
  EXPECT_EQ(begun, 0);
}

TEST_F(SeveralEnds, AfterADeadlineTheRunTriesAndWaits) {
  start_measured();
  const SteadyTime deadline = now() + 2s;
  announcer.deadline(deadline);
  volume.clock.advance(3s);
  EXPECT_TRUE(step().saved) << "the machine lives";
  EXPECT_EQ(durable(), 11);
  EXPECT_GE(now(), deadline + 60s) << "it paused for a minute";
  EXPECT_FALSE(step().saved);
  EXPECT_THAT(log.text(), Not(HasSubstr("no time for a save")));
}

TEST_F(SeveralEnds, BehindAnOutlivedEndAnotherStopsTheRun) {
  options.notices.on_notice = OnNotice::exit;
  start_measured();
  other.deadline(now() + 2s);
  announcer.deadline(now() + 10min);
  volume.clock.advance(70s);
  EXPECT_TRUE(run->checkpointer.tick());
}

}}  // namespace holdfast::test
