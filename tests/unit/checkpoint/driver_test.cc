// What the run does when notices, saves and the program's answers meet: on several threads, and in any order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <stdexcept>
#include <thread>

#include "asked_clock.h"
#include "holdfast/base/text.h"
#include "together.h"

namespace holdfast::test { namespace {

using testing::Not;

// The monitor tells one notice at a time; on_save may bring the next one.
TEST_F(Noticed, OnSaveMayAskForASaveWhileANoticeCommits) {
  commit = {};
  std::atomic<bool> asks{false};
  std::atomic<int> asked{0};
  options.writing.on_save = [&](const SaveEvent&) {
    if (!asks) return;
    run->checkpointer.request_save();
    ++asked;
  };
  start_measured();
  step();
  asks = true;
  {
    const Checkpointer::EvaluationScope scope(run->checkpointer);
    announcer.deadline(now() + 120s);
    EXPECT_TRUE(soon([&] { return durable() == 11; }));
    EXPECT_TRUE(soon([&] { return asked > 0; }));
  }
  end_with_all_threads();  // on_save counts in this function's memory
}

TEST_F(Noticed, AnAnswerThatComesLateBringsNoWithdrawnEndBack) {
  commit = {};
  options.notices.on_notice = OnNotice::callback;
  int asked = 0;
  options.notices.decide = [&](const Notice&, Duration) {
    ++asked;
    announcer.withdraw();
    return OnNotice::exit;
  };
  start_measured();
  announcer.deadline(now() + 120s);
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(step().stop);
  EXPECT_EQ(asked, 1);
}

TEST_F(AskedNoticed, ATrainingThatLooksIsNotDeaf) {
  commit = {};
  start_measured();
  announcer.deadline(now() + 600s);
  const auto watch_looks = [&] {
    const int before = clock.asked_by_others(training);
    return soon([&] { return clock.asked_by_others(training) >= before + 3; });
  };
  for (int i = 0; i < 4; ++i) {
    volume.clock.advance(4s);
    step();
    EXPECT_TRUE(watch_looks());
  }
  volume.clock.advance(60s);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(watch_looks());  // it warns after its first look
  EXPECT_THAT(log.text(), HasSubstr("deaf for " + format_duration(60s))) << "this silence, and none before";
}

TEST_F(Noticed, AStepAfterAFailedSaveTellsItAlsoIfNothingIsDue) {
  start();
  for (int i = 0; i < 5; ++i) step();
  volume.faults.fail(Op::create, 1, ENOSPC, {.for_ever = true});
  EXPECT_EQ(run->checkpointer.save().wait(), SaveStatus::failed);
  EXPECT_TRUE(step().failure);
  volume.faults.clear_faults();
}

TEST_F(Noticed, ATickBeforeTheLoopHearsAStop) {
  MemorySource source{MemorySource::Options{}};
  Checkpointer checkpointer(source, options);
  EXPECT_FALSE(checkpointer.tick());
  checkpointer.request_stop("SIGTERM");
  EXPECT_TRUE(checkpointer.tick());
}

// The program left its loop by the notice, without a stop, and the machine outlived the announced time.
TEST_F(AskedNoticed, ADiskThatHangsHoldsNobodyWhoLeftBeforeAnEndThatHasPassed) {
  options.notices.on_notice = OnNotice::exit;
  start_measured();
  Gate gate;
  volume.faults.set_hook([&](const Operation& operation) {
    if (of_checkpoint(operation, Op::sync_file)) gate.pass();
  });
  announcer.deadline(now() + 60s);
  EXPECT_TRUE(run->step().stop);
  gate.await_arrival();
  volume.clock.advance(65s);
  std::atomic<bool> ended{false};
  std::thread time([&] {
    while (!ended) {
      volume.clock.advance(10s);
      std::this_thread::sleep_for(5ms);
    }
  });
  EXPECT_EQ(run->checkpointer.finish(), 75);
  ended = true;
  time.join();
  EXPECT_EQ(durable(), 10);
  run.reset();
  gate.open();
  EXPECT_TRUE(soon([&] { return volume.disk.open_handles() == 0; }));
  volume.faults.set_hook(nullptr);
}

TEST(HalfUpdate, ASecondStepThatThrowsIsNoBoundaryEither) {
  Volume volume;
  CapturedLog log;
  {
    Attempt run(volume.options());
    run.train_to(2);
    ASSERT_EQ(run.checkpointer.save().wait(), SaveStatus::durable);
    run.train_to(3);
    const auto throws_once = [&] {
      run.source.on_advance = [] { throw std::runtime_error("planted"); };
      EXPECT_THROW(run.step(), std::runtime_error);
      EXPECT_EQ(run.checkpointer.save().wait(), SaveStatus::failed);
      run.source.on_advance = nullptr;
    };
    throws_once();
    run.train_to(4);  // the save that was refused
    run.train_to(5);
    throws_once();
    run.checkpointer.request_stop("SIGTERM");
    EXPECT_EQ(run.checkpointer.finish(), 75);
    EXPECT_EQ(run.checkpointer.last_durable().step, 4);
  }
}

class RankZeroAlone : public Together {
 protected:
  RankZeroAlone() {
    patient = false;
    options.every = {SaveEvery::steps(2)};
  }
};

TEST_F(RankZeroAlone, CopiesTheNextSaveBesideTheOneThatIsWritten) {
  options.writing.second_image = true;
  SlowDisk disk(*volume);
  live(2, [&](Member& one) {
    one.train_to(9);
    if (one.rank == 0) {
      EXPECT_LE(disk.begun(), 1) << "none has ended";
      EXPECT_GE(one.saved.size(), 2U);
      disk.finish(100);
    }
    one.finish();
  });
  expect_all_ended(0);
}

TEST_F(RankZeroAlone, CopiesBesideTheNextStepOfALoopThatAnnouncesItsUpdates) {
  std::atomic<int> late{0};
  const auto train = [&](Member& one, std::int64_t last) {
    while (one.source.step() < last) {
      one.checkpointer->before_update();
      one.step();
      if (one.rank != 0 || !one.decision.saved || one.source.step() == last) continue;
      one.checkpointer->before_update();
      one.decision.save.wait();
    }
    if (one.rank == 0) late = one.source.late_copies;
    one.finish();
  };
  live(2, [&](Member& one) { train(one, 12); });
  expect_all_ended(0);
  EXPECT_GT(late, 2);
  const auto before = states();
  live(2, [&](Member& one) {
    EXPECT_EQ(one.resumed.step, 12);
    one.finish();
  });
  EXPECT_EQ(states(), before);
}

// The stop is heard by the last vote, after finish() was called on rank 0.
TEST_F(RankZeroAlone, AStopThatAnotherRankHearsAtTheEndIsTheReason) {
  live(2, [&](Member& one) {
    one.train_to(5);
    if (one.rank == 1) one.checkpointer->request_stop("SIGTERM");
    one.finish();
  });
  expect_all_ended(75);
  for (const auto& one : members) EXPECT_THAT(one->checkpointer->stop_reason(), Not(testing::IsEmpty()));
}

// on_save tells that the last save is copied: after the stop was decided, and before after_step() returns.
TEST_F(Noticed, TheReasonOfAStopIsWhatDecidedIt) {
  commit = {};
  options.notices.on_notice = OnNotice::exit;
  std::atomic<bool> withdraws{false};
  options.writing.on_save = [&](const SaveEvent&) {
    if (withdraws.exchange(false)) announcer.withdraw();
  };
  start_measured();
  announcer.deadline(now() + 120s);
  withdraws = true;
  Decision decision;
  for (int i = 0; i < 5 && !decision.stop; ++i) decision = step();
  EXPECT_TRUE(decision.stop);
  EXPECT_FALSE(withdraws);
  EXPECT_THAT(decision.reason, HasSubstr("the end is near"));
  EXPECT_EQ(run->checkpointer.finish(), 75);
  EXPECT_THAT(run->checkpointer.stop_reason(), HasSubstr("the end is near"));
}

// Before the loop there is no core: an end that has passed hides none that is still ahead.
TEST(BeforeTheLoop, AnEndThatTheMachineOutlivedIsForgotten) {
  Volume volume;
  CheckpointerOptions options = volume.options();
  options.notices.on_notice = OnNotice::exit;
  Announcer first, second;
  first.give_to(options);
  second.give_to(options);
  MemorySource source{MemorySource::Options{}};
  Checkpointer checkpointer(source, options);
  first.deadline(volume.clock.now() + 10s);
  EXPECT_TRUE(checkpointer.tick());
  EXPECT_THAT(checkpointer.stop_reason(), HasSubstr("the end is near"));
  volume.clock.advance(80s);
  EXPECT_FALSE(checkpointer.tick());
  second.deadline(volume.clock.now() + 600s);
  EXPECT_TRUE(checkpointer.tick());
}

// Its machine was to end, and lives.
TEST(StandsBy, ClaimsAgainOnceItsMachineHasOutlivedItsEnd) {
  Volume volume;
  {
    Attempt holder(volume.options());
    holder.train_to(3);
    holder.checkpointer.request_stop("enough");
    holder.train_to(10);
    EXPECT_EQ(holder.checkpointer.finish(), 75);
  }
  setenv("HOLDFAST_STANDBY", "1", 1);
  CheckpointerOptions options = volume.options();
  Announcer announcer;
  announcer.give_to(options);
  MemorySource source{MemorySource::Options{}};
  Checkpointer standby(source, options);
  unsetenv("HOLDFAST_STANDBY");
  announcer.deadline(volume.clock.now() + 10s);
  const SteadyTime began = volume.clock.now();
  EXPECT_GE(standby.resume().step, 3);
  EXPECT_GE(volume.clock.now() - began, 70s);
}

}}  // namespace holdfast::test
