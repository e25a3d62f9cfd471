// What a run decides about its end, without a run around it.
#include "holdfast/checkpoint/internal/outlook.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/captured_log.h"
#include "support/fake_clock.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using internal::Outlook;
using internal::Reached;
using testing::HasSubstr;

constexpr Reached kHere{.step = 12, .durable = 10, .standing = {}};

class OutlookTest : public testing::Test {
 protected:
  Outlook& outlook(OnNotice on_notice = OnNotice::train_on) {
    options.on_notice = on_notice;
    return made.emplace(options, monitor, costs, clock);
  }
  void announce(Duration left, const std::string& source = "ec2") {
    monitor.post({.source = source,
                  .kind = NoticeKind::deadline,
                  .deadline = clock.now() + left,
                  .text = source + " says so"});
  }
  void withdraw() { monitor.post({.source = "ec2", .kind = NoticeKind::withdrawn}); }

  FakeClock clock;
  CapturedLog log;
  Monitor monitor{clock};
  CostModel costs;
  NoticeOptions options;
  std::optional<Outlook> made;
};

TEST_F(OutlookTest, WithoutNewsTheRunTrains) {
  Outlook& run = outlook();
  EXPECT_EQ(run.decide(kHere).move, Move::train);
  EXPECT_FALSE(run.should_stop());
  EXPECT_EQ(run.reason(), "");
}

TEST_F(OutlookTest, AStopStaysOnceTheProgramWasTold) {
  Outlook& run = outlook(OnNotice::exit);
  announce(120s);
  EXPECT_TRUE(run.should_stop());
  EXPECT_FALSE(run.must_stop()) << "the notice may still be withdrawn";
  run.leave();
  withdraw();
  EXPECT_TRUE(run.must_stop());
  EXPECT_EQ(run.reason(), "ec2 says so");
  EXPECT_EQ(run.decide(kHere).move, Move::stop);
}

TEST_F(OutlookTest, AWithdrawnNoticeStopsNothing) {
  Outlook& run = outlook(OnNotice::exit);
  announce(120s);
  EXPECT_TRUE(run.should_stop());
  withdraw();
  EXPECT_FALSE(run.should_stop());
  EXPECT_EQ(run.decide(kHere).move, Move::train);
  EXPECT_EQ(run.reason(), "");
}

TEST_F(OutlookTest, ASaveThatBeganSinceInsuresTheNotice) {
  Outlook& run = outlook();
  announce(120s);
  EXPECT_EQ(run.decide(kHere).move, Move::commit);
  const auto save = std::make_shared<SaveHandle::Shared>(12, SaveStatus::staging, clock.now(), true, nullptr);
  run.insured_by(save);
  EXPECT_EQ(run.decide(kHere).move, Move::train);
  withdraw();
  run.decide(kHere);
  announce(130s);
  EXPECT_EQ(run.decide(kHere).move, Move::commit) << "another notice wants a save of its own";
}

TEST_F(OutlookTest, AnAnswerInsuresTheNoticeThatTheVotesReportLater) {
  Outlook& run = outlook();
  const auto save = std::make_shared<SaveHandle::Shared>(12, SaveStatus::staging, clock.now(), true, nullptr);
  run.answered_by(save);
  announce(120s);
  EXPECT_EQ(run.decide(kHere).move, Move::train);

  withdraw();
  Outlook& another = outlook();
  another.answered_by(save);
  another.forget_answer(13);
  announce(120s);
  EXPECT_EQ(another.decide(kHere).move, Move::commit);
}

TEST_F(OutlookTest, OneWarningForANoticeThatLeavesNoTime) {
  costs.committed(60s);
  Outlook& run = outlook();
  announce(30s);
  EXPECT_TRUE(run.decide(kHere).too_late);
  EXPECT_TRUE(run.decide(kHere).too_late);
  const std::string text = log.text();
  EXPECT_THAT(text, HasSubstr("no time for a save of step 12, which takes about"));
  EXPECT_THAT(text, HasSubstr("step 10 is the newest that is durable"));
  EXPECT_EQ(text.find("no time", text.find("no time") + 1), std::string::npos);
  EXPECT_FALSE(run.fits({}));
}

TEST_F(OutlookTest, AMachineThatOutlivesItsDeadlineTrainsOn) {
  Outlook& run = outlook(OnNotice::wait);
  announce(10s);
  EXPECT_EQ(run.decide(kHere).move, Move::last_commit);
  clock.advance(10s + kAliveAfter);
  EXPECT_EQ(run.decide(kHere).move, Move::train);
  EXPECT_FALSE(monitor.deadline());
}

TEST_F(OutlookTest, ACallbackIsAskedOnceForEachNotice) {
  int asked = 0;
  options.decide = [&](const Notice&, Duration left) {
    ++asked;
    EXPECT_EQ(left, Duration(120s));
    return OnNotice::wait;
  };
  Outlook& run = outlook(OnNotice::callback);
  announce(120s);
  EXPECT_EQ(run.decide(kHere).move, Move::last_commit);
  EXPECT_EQ(run.decide(kHere).move, Move::last_commit);
  EXPECT_EQ(asked, 1);
}

TEST_F(OutlookTest, ARunThatEndedByItselfHasTimeUntilItIsTold) {
  Outlook& run = outlook();
  const SteadyTime began = clock.now();
  announce(10s);
  clock.advance(20s);
  EXPECT_TRUE(run.out_of_time(began));
  EXPECT_FALSE(run.out_of_time(clock.now())) << "the machine has outlived that one";
  run.take_time(true);
  EXPECT_FALSE(run.out_of_time(began));
}

TEST_F(OutlookTest, ARunThatEndedByItselfAndIsToldToStopHasALimit) {
  Outlook& run = outlook();
  const SteadyTime began = clock.now();
  announce(10s);
  run.take_time(true);
  monitor.post({.source = "program", .kind = NoticeKind::stop, .text = "enough"});
  EXPECT_FALSE(run.out_of_time(began));
  clock.advance(20s);
  EXPECT_TRUE(run.out_of_time(began));
}

TEST_F(OutlookTest, TheLastSaveOfARunThatEndedByItselfIsNeverTooLateUntilItIsTold) {
  Outlook& run = outlook();
  costs.committed(60s);
  announce(30s);
  EXPECT_TRUE(run.last_save_too_late({}));
  run.take_time(true);
  EXPECT_FALSE(run.last_save_too_late({}));
  EXPECT_FALSE(run.fits({})) << "whoever ended it";
  monitor.post({.source = "program", .kind = NoticeKind::stop, .text = "enough"});
  EXPECT_TRUE(run.last_save_too_late({}));
  withdraw();
  EXPECT_FALSE(run.last_save_too_late({})) << "a stop without a time leaves all of it";
}

TEST_F(OutlookTest, OtherRanksMakeADecisionSlower) {
  costs.stepped(2s);
  Outlook& run = outlook();
  EXPECT_EQ(run.costs().agreement, Duration::zero());
  run.add_agreement(1s);
  run.add_agreement(Duration::zero());
  EXPECT_EQ(run.costs().agreement, Duration(3s));
}

TEST_F(OutlookTest, TheLastSaveBeginsEarlyEnoughToBeHome) {
  Outlook& run = outlook();
  costs.committed(2s);
  const Reached at{.step = 12, .durable = 10, .home = 8, .standing = {}};
  announce(66s);
  run.decide(at);
  run.insured_by(std::make_shared<SaveHandle::Shared>(12, SaveStatus::staging, clock.now(), true, nullptr));
  EXPECT_EQ(run.decide(at).move, Move::train) << "without a mirror";
  costs.home_takes(60s);
  EXPECT_EQ(run.decide(at).move, Move::last_commit);
  EXPECT_FALSE(run.decide(at).not_home);
  EXPECT_THAT(log.text(), testing::Not(HasSubstr("will not be home")));
}

TEST_F(OutlookTest, AStepThatCannotBeHomeInTimeIsToldOnce) {
  Outlook& run = outlook(OnNotice::wait);
  costs.committed(2s);
  costs.home_takes(60s);
  announce(50s);
  const Reached at{.step = 12, .durable = 10, .home = 8, .standing = {}};
  EXPECT_EQ(run.decide(at).move, Move::last_commit) << "durable here is better than nothing";
  run.decide(at);
  const std::string said = log.text();
  EXPECT_THAT(said, HasSubstr("step 12 will not be home in time"));
  EXPECT_THAT(said, HasSubstr("step 8 is the newest that is home"));
  EXPECT_EQ(said.find("will not be home"), said.rfind("will not be home")) << said;
}

TEST_F(OutlookTest, AGuessedGraceIsSharedWithTheWayHome) {
  Outlook& run = outlook();
  costs.committed(2s);
  costs.home_takes(60s);
  monitor.post({.source = "signal",
                .kind = NoticeKind::stop,
                .deadline = clock.now() + 25s,
                .text = "SIGTERM",
                .guessed = true});
  const Plan plan = run.decide({.step = 12, .durable = 10, .home = 8, .standing = {}});
  EXPECT_EQ(plan.move, Move::stop);
  EXPECT_FALSE(plan.too_late);
  EXPECT_TRUE(plan.not_home);
  EXPECT_THAT(log.text(), HasSubstr("step 12 will not be home in time"));
}

}}  // namespace holdfast::test
