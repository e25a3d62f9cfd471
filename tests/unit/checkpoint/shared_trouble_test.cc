// Checkpoints that all ranks write, and a rank that hangs, is slow or dies: nobody waits longer than that is
// worth, and what can be saved is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "together.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

class SharedTrouble : public Together {
 protected:
  SharedTrouble() {
    seers = 4;
    elements = 30'000;
    options.every = {SaveEvery::steps(4)};
    patient = false;
  }
  ~SharedTrouble() override { gate.open(); }
  // From now on that rank's share does not reach its disk.
  void hang(Member& one) {
    one.view.set_hook([this](const Operation& operation) {
      if (operation.kind == Op::sync_file) gate.pass();
    });
  }
  // Steps until that one, or a later one, is durable. Who waits for a share looks up every 1.5 real seconds.
  static void train_until_durable(Member& one, std::int64_t step, std::int64_t limit, Duration pace = 20ms) {
    while (one.checkpointer->last_durable().step < step && one.source.step() < limit) {
      one.step();
      std::this_thread::sleep_for(pace);
    }
    EXPECT_GE(one.checkpointer->last_durable().step, step) << one.rank;
  }
  static bool waited_less(SteadyTime since, Duration limit) { return Clock::real().now() - since < limit; }

  Gate gate;
};

TEST_F(SharedTrouble, AShareThatHangsKeepsNobodyFromSaving) {
  CapturedLog log;
  timeout = 4s;
  std::atomic<int> done{0};
  std::atomic<std::int64_t> last{0};  // step of both: each trains on until the other has what it waits for
  live(2, [&](Member& one) {
    if (one.rank == 1) hang(one);
    train_until_durable(one, 6, 2000);
    const std::int64_t first = one.checkpointer->last_durable().step;
    train_until_durable(one, first + 4, 3000);
    ++done;
    while (last == 0) {
      if (one.rank == 0 && done == 2) last = one.source.step() + 200;
      one.step();
      std::this_thread::sleep_for(20ms);
    }
    ASSERT_LE(one.source.step(), last);
    one.train_to(last);
    if (one.rank == 0) gate.open();
    one.finish();
  });
  expect_all_ended(0);
}

// The notice that shortens everybody's patience comes while it waits for the first share.
TEST_F(SharedTrouble, AnEndThatComesNearerShortensThePatience) {
  CapturedLog log;
  timeout = 10h;
  live(2, [&](Member& one) {
    if (one.rank == 1) hang(one);
    one.train_to(6);
    if (one.rank == 0) one.announcer.deadline(one.clock.now() + 10h);
    if (one.rank == 1) gate.await_arrival();
    one.train_to(12);
    if (one.rank == 0) one.announcer.deadline(one.clock.now() + 200s);
    train_until_durable(one, 12, 105, 100ms);
    one.train_to(200);
    if (one.rank == 0) gate.open();
    one.finish();
  });
  EXPECT_THAT(errors(), Each(std::string()));
}

// There is time for this save, and none for another by rank 0 alone.
TEST_F(SharedTrouble, ASaveThatEndsInTimeIsWaitedFor) {
  std::mutex mutex;
  std::set<std::string> seen;
  volume->faults.set_hook([&](const Operation& operation) {
    if (operation.kind != Op::write || operation.path.find("step-") == std::string::npos) return;
    const std::lock_guard lock(mutex);
    if (seen.insert(operation.path).second) volume->clock.advance(20s);
  });
  patient = true;
  live(2, [&](Member& one) {
    one.train_to(6);
    if (one.rank == 1) {
      one.view.set_hook([](const Operation& operation) {
        if (operation.kind == Op::sync_file) std::this_thread::sleep_for(4s);
      });
    }
    if (one.rank == 0) one.announcer.stop(one.clock.now() + 56s);
    one.train_to(20);
    one.finish();
  });
  expect_all_ended(75);
  EXPECT_EQ(member(0).checkpointer->figures().failed, 0);
  EXPECT_EQ(member(0).checkpointer->last_durable().step, member(0).source.step());
}

// Neither its training thread nor anybody else waits for that disk without end.
TEST_F(SharedTrouble, AStopWithoutADeadlineDoesNotWaitForAShareThatHangs) {
  CapturedLog log;
  timeout = 8s;
  live(2, [&](Member& one) {
    one.train_to(3);
    if (one.rank == 1) hang(one);
    one.train_to(6);
    if (one.rank == 1) gate.await_arrival();
    const SteadyTime began = Clock::real().now();
    if (one.rank == 0) one.checkpointer->request_stop("enough");
    one.train_to(20);
    one.finish();
    if (one.rank == 0) gate.open();
    EXPECT_TRUE(waited_less(began, 60s));
  });
  expect_all_ended(75);
  EXPECT_EQ(member(0).checkpointer->last_durable().step, member(0).source.step());
}

TEST_F(SharedTrouble, ARankThatDiesInTheLastSaveCostsNothing) {
  CapturedLog log;
  timeout = 10h;
  patient = true;
  live(3, [&](Member& one) {
    one.train_to(6);
    if (one.rank == 2) {
      one.view.set_hook([&](const Operation& operation) {
        if (operation.kind != Op::sync_file || one.source.step() != 7) return;
        world->lose(2);
        gate.pass();
      });
    }
    one.train_to(7);
    const SteadyTime began = Clock::real().now();
    one.finish();
    if (one.rank == 0) gate.open();
    EXPECT_TRUE(waited_less(began, 60s));
  });
  EXPECT_EQ(member(0).error, "");
  EXPECT_EQ(member(0).code, 0);
  EXPECT_EQ(member(0).checkpointer->last_durable().step, 7);
  EXPECT_THAT(log.text(), HasSubstr("rank 2 did not report its share of the checkpoint: rank 2 is lost"));
}

// One that cannot copy is asked again; the same twice is one that fails.
TEST_F(SharedTrouble, ARankThatRefusesOnceSharesTheNextSave) {
  patient = true;
  for (const int times : {1, 2}) {
    CapturedLog log;
    start_over();
    options.every = {SaveEvery::steps(1'000'000)};
    std::atomic<int> left{times};
    live(2, [&](Member& one) {
      one.train_to(3);
      if (one.rank == 1) {
        one.source.on_copy = [&] {
          if (left > 0 && left-- > 0) throw std::bad_alloc();
        };
      }
      if (one.rank == 0) one.checkpointer->request_save();
      // Nothing but the refusals asks for more than that one.
      while (one.saved.size() <= static_cast<std::size_t>(times) && one.source.step() < 100'000) {
        one.step();
        std::this_thread::sleep_for(1ms);  // the threads that write get their turn
      }
      EXPECT_EQ(one.saved.size(), times + 1);
      one.finish();
    });
    expect_all_ended(0);
    EXPECT_EQ(member(0).checkpointer->figures().failed, times);
    EXPECT_EQ(log.text().find("alone") == std::string::npos, times == 1);
  }
}

// The pause has saved the step at which the stop comes.
TEST_F(SharedTrouble, AStopInAPauseFailsNothingThatIsDurable) {
  options.every = {};
  patient = true;
  live(3, [](Member& one) {
    one.clock.let_others_run(20ms);  // the threads that write the shares
    one.train_to(5);
    if (one.rank == 2) one.announcer.deadline(one.clock.now() + 60s);
    if (one.rank == 0) one.clock.plan(58s, [&] { one.checkpointer->request_stop("enough"); });
    one.train_to(60);
    one.finish();
  });
  expect_all_ended(75);
  EXPECT_EQ(member(0).checkpointer->figures().failed, 0);
  for (const auto& one : members) {
    EXPECT_EQ(one->checkpointer->last_durable().step, one->source.step());
  }
}

// SIGTERM with a grace that is only guessed, and a disk that needs longer: a guess forbids no save.
TEST_F(SharedTrouble, AGuessedEndBreaksNoSaveOff) {
  patient = true;
  std::atomic<bool> over{false};
  std::thread time;
  live(2, [&](Member& one) {
    one.train_to(9);
    one.patient = false;
    one.step_time = 1ms;
    if (one.rank == 1) {
      one.view.set_hook([](const Operation& operation) {
        if (operation.kind == Op::sync_file) std::this_thread::sleep_for(3500ms);
      });
    } else {
      one.announcer.tell(
          {.kind = NoticeKind::stop, .deadline = one.clock.now() + 1s, .text = "SIGTERM", .guessed = true});
      time = std::thread([&] {
        for (; !over; std::this_thread::sleep_for(10ms)) {
          for (const auto& each : members) each->clock.advance(10ms);
        }
      });
    }
    one.train_to(40);
    one.finish();
  });
  over = true;
  time.join();
  expect_all_ended(75);
  EXPECT_EQ(member(0).checkpointer->figures().failed, 0);
}

// Rank 0's disk is slow and the next save begins before the last has ended.
TEST_F(SharedTrouble, ASaveInHandIsToldAsItEnds) {
  std::atomic<bool> asked{false};
  volume->faults.set_hook([&](const Operation& operation) {
    if (operation.kind != Op::sync_file || operation.path.find("step-") == std::string::npos) return;
    while (!asked) std::this_thread::sleep_for(1ms);
    std::this_thread::sleep_for(300ms);
  });
  live(2, [&](Member& one) {
    SaveHandle first;
    while (!one.decision.saved) one.step();
    first = one.decision.save;
    if (one.rank == 1) one.checkpointer->request_stop("enough");
    while (!one.decision.stop) {
      one.step();
      asked = asked || one.source.step() > first.step() + 1;
    }
    one.finish();
    EXPECT_EQ(first.status(), SaveStatus::durable) << one.rank << first.error();
    EXPECT_NE(first.checkpoint(), "");
  });
  EXPECT_THAT(errors(), Each(std::string()));
}

// Averages that begin to be trained, a parameter that is frozen: the division follows.
TEST_F(SharedTrouble, WhatIsReplicatedMayChange) {
  patient = true;
  live(2, [](Member& one) {
    one.train_to(10);
    one.source.weight_is_replicated = false;
    one.train_to(20);
    one.finish();
  });
  expect_all_ended(0);
  EXPECT_LT(member(1).decision.save.figures().staged, member(0).checkpointer->figures().last.staged);
  EXPECT_LE(member(1).decision.save.figures().staged, 30'000u * 4 + 100) << "its part of the momentum";
}

TEST_F(SharedTrouble, AnEvaluationThatIsCutShortStaysDue) {
  for (const bool cut : {true, false}) {
    start_over();
    live(2, [&](Member& one) {
      one.train_to(6);
      StepReport report = one.source.train();
      report.evaluation_due = true;
      one.checkpointer->after_step(report);
      {
        Checkpointer::EvaluationScope scope(*one.checkpointer);
        if (cut) scope.cut_short();
      }
      one.finish();
    });
    EXPECT_THAT(errors(), Each(std::string()));
    live(2, [&](Member& one) {
      EXPECT_EQ(one.resumed.step, 7);
      EXPECT_EQ(one.resumed.evaluation_due, cut);
      one.finish();
    });
    EXPECT_THAT(errors(), Each(std::string()));
  }
}

// A program that ends with an exception of its own.
TEST_F(SharedTrouble, WhoEndsWithoutFinishWaitsAMomentForTheOthers) {
  CapturedLog log;
  timeout = 10h;
  std::atomic<bool> over{false};
  live(2, [&](Member& one) {
    if (one.rank == 1) hang(one);
    one.train_to(6);
    gate.await_arrival();
    if (one.rank == 0) {
      const SteadyTime began = one.clock.now();
      one.checkpointer.reset();
      EXPECT_LT(one.clock.now() - began, Duration(300s));
      over = true;
    } else {
      while (!over) {
        std::this_thread::sleep_for(100ms);
        volume->clock.advance(1s);
      }
      gate.open();
      one.checkpointer.reset();
    }
  });
}

}}  // namespace holdfast::test
