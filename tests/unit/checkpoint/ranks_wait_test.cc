// How long ranks wait for each other, what they hear of each other's ends, and what they are told of a save
// that does not come.
#include <atomic>
#include <thread>

#include "slow_disk.h"
#include "support/gate.h"
#include "support/soon.h"
#include "together.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;

// Both ranks write each checkpoint, and nothing falls due by itself.
class RanksWait : public Together {
 protected:
  RanksWait() {
    seers = 4;
    elements = 30'000;
    options.every = {SaveEvery::steps(1'000'000)};
  }
  static void steps(Member& one, int count) {
    for (int i = 0; i < count; ++i) one.step();
  }
  // That rank waits, and has looked so often meanwhile.
  bool looks(int rank, int times, const std::atomic<bool>& or_over) {
    const int before = world->looks(rank);
    return soon([&] { return or_over || world->looks(rank) >= before + times; });
  }
  static void ask_for_save(Member& one) {
    if (one.rank == 0) one.checkpointer->request_save();
  }
};

// An earlier save failed on rank 0. This one is left out, because an end is announced after the vote.
TEST_F(RanksWait, ASaveThatIsLeftOutCarriesNoOlderFailure) {
  const CapturedLog log;
  volume->faults.set_hook([&](const Operation& operation) {
    const bool commits = operation.kind == Op::sync_file && operation.path.find("step-") != std::string::npos;
    if (commits) volume->clock.advance(10s);
  });
  std::vector<SaveHandle> of_one;
  live(2, [&](Member& one) {
    const auto step = [&] {
      one.step();
      if (one.rank == 1 && one.decision.saved) of_one.push_back(one.decision.save);
    };
    const auto save = [&] {
      ask_for_save(one);
      for (int i = 0; i < 4; ++i) step();
    };
    save();
    if (one.rank == 0) {
      one.source.on_copy = [&, failed = false]() mutable {
        if (!std::exchange(failed, true)) throw std::bad_alloc();
      };
    }
    save();
    save();
    ask_for_save(one);
    step();
    if (one.rank == 0) one.announcer.deadline(one.clock.now() + 5s);
    step();
    if (one.rank == 0) one.announcer.withdraw();
    for (int i = 0; i < 3; ++i) step();
    one.finish();
  });
  expect_all_ended(0);
  ASSERT_EQ(of_one.size(), 5U);
  EXPECT_EQ(of_one[0].status(), SaveStatus::durable);
  EXPECT_EQ(of_one[1].status(), SaveStatus::failed);
  EXPECT_THAT(of_one[1].error(), HasSubstr("rank 0 could not save: staging step"));
  EXPECT_EQ(of_one[2].status(), SaveStatus::durable);
  EXPECT_EQ(of_one[3].status(), SaveStatus::overtaken) << of_one[3].error();
  EXPECT_EQ(of_one[4].status(), SaveStatus::durable) << "it was still wanted";
}

// Rank 1 writes under a limit on its own clock.
TEST_F(RanksWait, TheWriteLimitOfSharesIsLiftedAtAnEndAndComesBack) {
  elements = 300'000;
  options.writing.write_limit = 0.2;
  live(2, [&](Member& one) {
    constexpr int kSteps = 8;
    const auto took = [&](const auto& begins) {
      const SteadyTime began = one.clock.now();
      const std::size_t before = one.saved.size();
      if (one.rank == 0) begins();
      steps(one, kSteps);
      EXPECT_EQ(one.saved.size(), before + 1);
      return one.clock.now() - began - kSteps * one.step_time;
    };
    const auto ask = [&] { one.checkpointer->request_save(); };
    steps(one, 3);
    const Duration limited = took(ask);
    const Duration lifted = took([&] { one.announcer.deadline(one.clock.now() + 1h); });
    if (one.rank == 0) one.announcer.withdraw();
    steps(one, 3);
    const Duration again = took(ask);
    one.finish();
    if (one.rank == 0) return;
    EXPECT_GT(limited, 2s);
    EXPECT_LT(lifted, limited / 2);
    EXPECT_GT(again, limited / 2);
  });
  expect_all_ended(0);
}

struct LateRank {
  const char* what;
  Duration left;   // until the announced end; zero: none is announced
  Duration limit;  // of the wait
  bool at_end = false;
};

// The channel's own time, or before an end a tenth of the time that is left. In finish() rank 0 may still copy
// the state, so it is no tenth there.
TEST_F(RanksWait, ARankThatDoesNotComeIsWaitedForByTheTimeThatIsLeft) {
  for (const LateRank& row :
       {LateRank{"the vote of a step boundary", 0s, 300s}, LateRank{"the vote of a step boundary", 100s, 10s},
        LateRank{"the vote of the last step", 100s, 300s, true}}) {
    SCOPED_TRACE(testing::Message() << row.what << ", " << row.limit.count());
    const CapturedLog log;
    start_over();
    timeout = 300s;
    live(2, [&](Member& one) {
      steps(one, 3);
      if (one.rank == 1) return;
      if (row.left > Duration::zero()) one.announcer.deadline(one.clock.now() + row.left + one.step_time);
      one.step();  // posts the vote that rank 1 does not cast
      std::atomic<bool> over{false};
      const auto looks_on = [&] { return looks(0, 3, over); };
      std::thread time([&] {
        EXPECT_TRUE(looks_on());
        one.clock.advance(row.limit - 1s - (row.at_end ? Duration::zero() : one.step_time));
        EXPECT_TRUE(looks_on());
        EXPECT_FALSE(over);
        one.clock.advance(2s);
        EXPECT_TRUE(soon([&] { return over.load(); }));
        one.clock.advance(24h);
      });
      std::string error;
      try {
        row.at_end ? static_cast<void>(one.finish()) : static_cast<void>(one.step());
      } catch (const Error& lost) {
        error = lost.what();
      }
      over = true;
      time.join();
      EXPECT_THAT(error, HasSubstr("nobody came (" + std::string(row.what) + ")"));
    });
  }
}

// Within half of the time after which a rank counts as lost. So a disk that hangs makes no lost rank.
TEST_F(RanksWait, NobodyWaitsForAShareUntilARankCountsAsLost) {
  const CapturedLog log;
  patient = false;
  timeout = 60s;
  Gate gate;
  std::atomic<bool> over{false};
  live(2, [&](Member& one) {
    if (one.rank == 1) {
      one.view.set_hook([&](const Operation& operation) {
        if (operation.kind == Op::sync_file) gate.pass();
      });
    }
    steps(one, 2);
    ask_for_save(one);
    SaveHandle save;
    while (!one.decision.saved) one.step();
    save = one.decision.save;
    gate.await_arrival();
    if (one.rank == 0) {
      EXPECT_TRUE(looks(0, 1, over));  // its writer, every 1.5 s
      one.clock.advance(29s);
      EXPECT_TRUE(looks(0, 1, over));
      EXPECT_EQ(save.status(), SaveStatus::staged);
      one.clock.advance(2s);
      EXPECT_TRUE(soon([&] { return save.status() == SaveStatus::failed; }));
      EXPECT_THAT(save.error(), HasSubstr("rank 1 did not report its share"));
      gate.open();
      over = true;
    }
    while (!over) std::this_thread::sleep_for(1ms);
    steps(one, 3);
    one.finish();
  });
  expect_all_ended(0);
}

// Machines that end a second apart, by clocks that tick apart.
TEST_F(RanksWait, AnEndAboutAsNearAsTheOwnStaysOneNotice) {
  CapturedLog log;
  live(2, [&](Member& one) {
    steps(one, 2);
    const SteadyTime end = one.clock.now() + 3000s;
    one.announcer.deadline(one.rank == 1 ? end : end + 1100ms);
    steps(one, 4);
    if (one.rank == 0) one.announcer.deadline(end + 500ms);
    steps(one, 4);
    one.finish();
  });
  expect_all_ended(0);
  const std::string said = log.text();
  const std::string heard = "notice (another rank): the end of another rank's machine is announced";
  EXPECT_NE(said.find(heard), std::string::npos);
  EXPECT_EQ(said.find(heard), said.rfind(heard));
}

// What has passed leaves no time of its own: the last save is waited for.
TEST_F(RanksWait, AStopAfterAnEndThatHasPassedHasNoDeadline) {
  CapturedLog log;
  live(2, [&](Member& one) {
    steps(one, 5);
    if (one.rank == 1) {
      one.announcer.deadline(one.clock.now() + 60s);
      one.clock.plan(80s, [&] { one.checkpointer->request_stop("enough"); });
    }
    one.train_to(100);
    one.finish();
  });
  expect_all_ended(75);
  EXPECT_THAT(log.text(), HasSubstr("notice (another rank): rank 1 was told to stop\n"));
}

// Rank 0 writes alone, and its disk is slow when the other rank dies.
TEST_F(RanksWait, WhatIsBeingWrittenIsStillCommittedWhenARankIsLost) {
  const CapturedLog log;
  seers = 1;
  patient = false;
  SlowDisk disk(*volume);
  live(2, [&](Member& one) {
    ask_for_save(one);
    while (!one.decision.saved) one.step();
    disk.await(1);
    if (one.rank == 1) throw Error("gone", ExitCode::interrupted);
    std::atomic<bool> finished{false};
    std::thread later([&] {
      std::this_thread::sleep_for(200ms);  // the run has broken off by then, and waits
      finished = true;
      disk.finish();
    });
    const SaveHandle save = one.decision.save;
    EXPECT_THROW(one.train_to(10), Error);
    EXPECT_TRUE(finished);
    later.join();
    EXPECT_EQ(save.status(), SaveStatus::durable) << save.error();
    EXPECT_EQ(one.finish(), 75);
  });
  EXPECT_EQ(volume->checkpoints().size(), 1U);
}

}}  // namespace holdfast::test
