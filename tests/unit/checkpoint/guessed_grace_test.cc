// A deadline that nobody named is a guess: it hurries a commit and forbids none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "together.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using testing::Each;
using testing::HasSubstr;
using testing::Not;

// A commit takes 30 s on this disk.
void slow_down(Volume& volume) {
  volume.faults.set_hook([&volume](const Operation& operation) {
    if (operation.kind == Op::sync_file && operation.path.find("step-") != std::string::npos) {
      volume.clock.advance(30s);
    }
  });
}

void tell(Announcer& announcer, Volume& volume, NoticeKind kind, Duration left, bool guessed) {
  announcer.tell({.kind = kind,
                  .deadline = volume.clock.now() + std::chrono::duration_cast<SteadyTime::duration>(left),
                  .text = "the end is near",
                  .guessed = guessed});
}

TEST(GuessedGrace, NeverForbidsTheLastCommit) {
  for (const bool guessed : {false, true}) {
    Volume volume;
    slow_down(volume);
    CapturedLog log;
    Announcer announcer;
    CheckpointerOptions options = volume.options();
    announcer.give_to(options);
    Attempt run(options);
    run.train_to(1);
    ASSERT_EQ(run.checkpointer.save().wait(), SaveStatus::durable);  // the cost is known
    run.train_to(10);
    tell(announcer, volume, NoticeKind::stop, 25s, guessed);
    EXPECT_TRUE(run.step().stop);
    EXPECT_EQ(run.decision.saved, guessed);
    EXPECT_EQ(run.checkpointer.finish(), 75);
    EXPECT_EQ(run.checkpointer.last_durable().step, guessed ? 11 : 1);
  }
}

TEST(GuessedGrace, ANoticeWithoutATimeForbidsNoInsurance) {
  for (const bool guessed : {false, true}) {
    Volume volume;
    slow_down(volume);
    CapturedLog log;
    Announcer announcer;
    CheckpointerOptions options = volume.options();
    options.notices.on_notice = OnNotice::exit;
    announcer.give_to(options);
    Attempt run(options);
    run.train_to(1);
    ASSERT_EQ(run.checkpointer.save().wait(), SaveStatus::durable);
    run.train_to(3);
    tell(announcer, volume, NoticeKind::deadline, 20s, guessed);
    EXPECT_TRUE(run.step().stop);
    EXPECT_EQ(run.checkpointer.finish(), 75);
    EXPECT_EQ(run.checkpointer.last_durable().step, guessed ? 4 : 1);
  }
}

TEST(GuessedGrace, ANamedDeadlineThatIsNearerStillForbids) {
  Volume volume;
  slow_down(volume);
  CapturedLog log;
  Announcer announcer;
  CheckpointerOptions options = volume.options();
  announcer.give_to(options);
  Attempt run(options);
  run.train_to(1);
  ASSERT_EQ(run.checkpointer.save().wait(), SaveStatus::durable);
  run.train_to(3);
  tell(announcer, volume, NoticeKind::deadline, 20s, false);
  tell(announcer, volume, NoticeKind::stop, 25s, true);
  EXPECT_TRUE(run.step().stop);
  EXPECT_EQ(run.checkpointer.finish(), 75);
  EXPECT_EQ(run.checkpointer.last_durable().step, 1);
}

using GuessedGraceOfRanks = Together;
TEST_F(GuessedGraceOfRanks, ARankThatGuessesForbidsNothing) {
  for (const bool guessed : {false, true}) {
    CapturedLog log;
    start_over();
    slow_down(*volume);
    options.every = {SaveEvery::steps(2)};
    live(2, [&](Member& one) {
      one.train_to(6);
      if (one.rank == 1) {
        one.announcer.tell({.kind = NoticeKind::stop,
                            .deadline = one.clock.now() + 25s,
                            .text = "SIGTERM",
                            .guessed = guessed});
      }
      one.train_to(20);
      one.finish();
    });
    EXPECT_THAT(codes(), Each(75));
    const std::int64_t at = member(0).source.step();
    EXPECT_EQ(member(0).checkpointer->last_durable().step == at, guessed) << at;
  }
}

}}  // namespace holdfast::test
