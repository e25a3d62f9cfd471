// Several ranks, one checkpoint: threads as ranks, which see each other in memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <new>
#include <utility>

#include "holdfast/ranks/rank_channel.h"
#include "slow_disk.h"
#include "support/captured_log.h"
#include "together.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

TEST_F(Together, ANoticeOnTheLastRankStopsAllAtOneStepAndAllGoOnThere) {
  live(3, [](Member& one) {
    one.train_to(20);
    one.finish();
  });
  EXPECT_THAT(errors(), Each(std::string()));
  const auto uninterrupted = states();
  const auto own_then = own();
  EXPECT_NE(own_then[0], own_then[1]);

  start_over();
  live(3, [](Member& one) {
    one.train_to(7);
    if (one.rank == 2) one.announcer.stop(one.clock.now() + 1h);
    one.train_to(20);
    one.finish();
  });
  EXPECT_THAT(errors(), Each(std::string()));
  EXPECT_THAT(steps(), Each(9)) << "voted at 8, done at 9";
  EXPECT_THAT(codes(), Each(75));
  EXPECT_THAT(member(0).checkpointer->stop_reason(), HasSubstr("rank 2 was told to stop"));
  EXPECT_THAT(volume->checkpoints(), testing::ElementsAre(HasSubstr("step-000000000009-a0001")));

  live(3, [](Member& one) {
    one.train_to(20);
    one.finish();
  });
  expect_all_ended(0);
  EXPECT_EQ(states(), uninterrupted);
  EXPECT_EQ(own(), own_then) << "what is a rank's own comes back to it";
  for (const auto& one : members) {
    EXPECT_EQ(one->resumed.step, 9);
    EXPECT_TRUE(one->resumed.bit_exact);
    EXPECT_EQ(one->checkpointer->attempt(), 2U);
    EXPECT_EQ(one->checkpointer->last_durable().step, 20);
  }
}

TEST_F(Together, ASaveThatOneRankAsksForIsEverybodys) {
  live(3, [](Member& one) {
    one.train_to(4);
    if (one.rank == 1) one.checkpointer->request_save();
    if (one.rank == 2) {
      EXPECT_EQ(one.checkpointer->save().status(), SaveStatus::failed) << "it only asks";
    }
    one.train_to(10);
    one.finish();
  });
  expect_all_ended(0);
  for (const auto& one : members) EXPECT_THAT(one->saved, testing::ElementsAre(6)) << one->rank;
  EXPECT_EQ(volume->checkpoints().size(), 2U) << "that one, and the end";
}

TEST_F(Together, RankZeroDecidesByTime) {
  options.every = {SaveEvery::steps(10)};
  live(2, [](Member& one) {
    one.train_to(35);
    one.finish();
  });
  EXPECT_THAT(errors(), Each(std::string()));
  EXPECT_THAT(member(0).saved, testing::SizeIs(3));
  EXPECT_EQ(member(0).saved, member(1).saved);
  EXPECT_EQ(member(0).saved.front(), 10) << "voted on at 9";
}

// The disk answers when it is told to: until then no save begins, on any rank.
TEST_F(Together, NoSaveBeginsWhileARankIsBusy) {
  SlowDisk disk(*volume);
  patient = false;
  options.every = {SaveEvery::steps(3)};
  live(2, [&](Member& one) {
    one.train_to(20);
    EXPECT_EQ(one.saved.size(), 1U);
    if (one.rank == 0) {
      disk.finish(1000);
      EXPECT_TRUE(soon([&] { return one.checkpointer->last_durable().step == one.saved.front(); }));
    }
    one.train_to(30);
    one.finish();
  });
  expect_all_ended(0);
  EXPECT_GE(member(0).saved.size(), 2U);
  EXPECT_EQ(member(0).saved, member(1).saved);
}

TEST_F(Together, RanksThatCountDifferentlyAreNamed) {
  live(3, [](Member& one) {
    one.train_to(one.rank == 1 ? 4 : 6);
    one.finish();
  });
  EXPECT_THAT(errors(), Each(AllOf(HasSubstr("64 the ranks have taken different numbers of steps"),
                                   HasSubstr("rank 2 is at step 5, rank 1 is at step 4"))));
  EXPECT_THAT(codes(), Each(-1));
}

// A notice inside is heard by all after the next step; the evaluation itself goes to its end.
TEST_F(Together, AnEvaluationOnOneRankDividesNobody) {
  live(2, [](Member& one) {
    one.train_to(3);
    if (one.rank == 0) {
      const Checkpointer::EvaluationScope scope(*one.checkpointer);
      one.announcer.stop(one.clock.now() + 1h);
      EXPECT_FALSE(one.checkpointer->tick()) << "not agreed yet";
    }
    one.train_to(20);
    one.finish();
  });
  EXPECT_THAT(errors(), Each(std::string()));
  EXPECT_THAT(steps(), Each(5));
  EXPECT_THAT(codes(), Each(75));
}

TEST_F(Together, ANoticeInTheLastStepIsEverybodys) {
  for (const bool before : {true, false}) {
    start_over();
    live(3, [&](Member& one) {
      one.train_to(before ? 9 : 10);
      if (one.rank == 2) one.announcer.stop(one.clock.now() + 1h);
      one.train_to(10);
      one.finish();
    });
    EXPECT_THAT(errors(), Each(std::string()));
    EXPECT_THAT(codes(), Each(75)) << before;
    EXPECT_THAT(volume->checkpoints(), testing::ElementsAre(HasSubstr("step-000000000010-")));
  }
}

TEST_F(Together, AFailedSaveIsToldToAll) {
  options.every = {SaveEvery::steps(5)};
  live(2, [&](Member& one) {
    if (one.rank == 0) volume->faults.fail(Op::sync_file, 1, EIO, {.for_ever = true});
    one.train_to(5);
    const SaveHandle save = one.decision.save;
    one.train_to(8);
    EXPECT_TRUE(one.decision.failure.has_value()) << one.rank;
    EXPECT_EQ(save.status(), SaveStatus::failed) << one.rank;
    one.finish();
  });
  expect_all_ended(74);
  EXPECT_THAT(member(1).checkpointer->stop_reason(), HasSubstr("step 8 failed"));
}

TEST_F(Together, WhatOneRankCannotCopyFailsThatSaveAlone) {
  options.every = {SaveEvery::steps(5)};
  live(2, [](Member& one) {
    bool failed = false;
    one.source.on_own_copy = [&] {
      if (std::exchange(failed, true)) return;
      throw std::bad_alloc();
    };
    one.train_to(5);
    const SaveHandle first = one.decision.save;
    one.train_to(8);
    EXPECT_EQ(first.status(), SaveStatus::failed) << one.rank;
    if (one.rank == 0) {
      EXPECT_THAT(one.decision.failure.value_or(""), HasSubstr("rank 1 could not copy"));
      EXPECT_THAT(one.decision.failure.value_or(""), HasSubstr("out of memory"));
    }
    one.train_to(20);
    one.finish();
  });
  expect_all_ended(0);
  EXPECT_THAT(volume->checkpoints(), testing::Contains(HasSubstr("step-000000000020-")));
}

TEST_F(Together, WhatCouldNotBeCopiedAtAStopIsToldAgainAtTheEnd) {
  live(2, [](Member& one) {
    one.train_to(4);
    bool failed = false;
    one.source.on_own_copy = [&] {
      if (!std::exchange(failed, true)) throw std::bad_alloc();
    };
    if (one.rank == 1) one.announcer.stop(one.clock.now() + 1h);
    one.train_to(20);
    one.finish();
  });
  expect_all_ended(75);
  EXPECT_THAT(volume->checkpoints(), testing::ElementsAre(HasSubstr("step-000000000006-")));
}

// The step that was the best is past when all ranks can save.
TEST_F(Together, TheBestOfAMetricIsKept) {
  options.keep = KeepLast{2} | KeepBest{"accuracy", 1, Better::higher};
  live(2, [](Member& one) {
    for (const double value : {0.5, 0.9, 0.7}) {
      one.train_to(one.source.step() + 4);
      one.checkpointer->metric("accuracy", value);
    }
    for (const std::int64_t step : {14, 18, 22}) {
      one.train_to(step);
      one.checkpointer->request_save();
    }
    one.train_to(30);
    one.finish();
  });
  EXPECT_THAT(errors(), Each(std::string()));
  EXPECT_THAT(member(0).saved, testing::ElementsAre(6, 10, 16, 20, 24)) << "0.7 is none of the best";
  EXPECT_THAT(volume->checkpoints(),
              testing::UnorderedElementsAre(HasSubstr("step-000000000010-"), HasSubstr("step-000000000024-"),
                                            HasSubstr("step-000000000030-")));
}

TEST_F(Together, CompanionsServeOneCheckpointer) {
  live(2, [](Member& one) { one.finish(); });
  EXPECT_THAT(errors(), Each(std::string()));
  MemorySource other;
  EXPECT_THROW(Checkpointer(other, member(0).options), UsageError);
}

TEST_F(Together, AnotherNumberOfRanksGoesOnWithTheSameState) {
  live(3, [](Member& one) {
    one.train_to(6);
    one.finish();
  });
  const auto own_of_three = own();
  const std::string state = member(0).state();
  live(2, [](Member& one) { one.finish(); });
  EXPECT_THAT(errors(), Each(std::string()));
  EXPECT_EQ(own()[0], own_of_three[0]);
  EXPECT_EQ(own()[1], own_of_three[1]);
  EXPECT_EQ(member(0).state(), state);
  for (const auto& one : members) {
    EXPECT_FALSE(one->resumed.bit_exact);
    EXPECT_EQ(one->resumed.step, 6);
  }
  live(4, [](Member& one) {
    one.train_to(8);
    one.finish();
  });
  EXPECT_THAT(errors(), Each(std::string()));
  EXPECT_EQ(member(3).resumed.step, 6);
  const auto own_of_four = own();
  EXPECT_NE(own_of_four[2], own_of_four[3]);
  EXPECT_NE(own_of_four[0], own_of_four[3]) << "derived, not rank 0's";
  EXPECT_FALSE(member(3).resumed.bit_exact);

  // Alone, from a file of four.
  options.ranks.channel = nullptr;
  Attempt alone(options);
  EXPECT_EQ(alone.resumed.step, 8);
  EXPECT_FALSE(alone.resumed.bit_exact);
}

TEST_F(Together, ALostRankEndsTheOthersAndWhatWasCommittedStands) {
  options.every = {SaveEvery::steps(4)};
  live(3, [](Member& one) {
    one.train_to(6);
    if (one.rank == 1) throw Error("rank 1 has had enough");
    one.train_to(20);
    one.finish();
  });
  EXPECT_EQ(member(1).error, "70 rank 1 has had enough");
  EXPECT_EQ(member(0).error.substr(0, 3), "75 ");
  EXPECT_EQ(member(2).error.substr(0, 3), "75 ");
  EXPECT_THAT(volume->checkpoints(), testing::ElementsAre(HasSubstr("step-000000000004-")));
  auto disk = volume->disk.copy();
  const auto run = read_run_state(*disk.open_directory(kRun, false)).value();
  EXPECT_EQ(run.phase, RunPhase::interrupted);
  EXPECT_EQ(run.exit_code, 75);

  live(3, [](Member& one) {
    one.train_to(20);
    one.finish();
  });
  expect_all_ended(0);
  EXPECT_EQ(member(2).resumed.step, 4);
}

TEST_F(Together, WhatOneRankRefusesEndsAll) {
  live(2, [](Member& one) {
    one.train_to(3);
    one.finish();
  });
  odd_one = 1;
  live(2, [](Member& one) { one.train_to(5); });
  EXPECT_THAT(errors(), Each(AllOf(testing::StartsWith("78 "), HasSubstr("learning_rate"))));
  EXPECT_THAT(member(0).error, HasSubstr("rank 1: "));

  odd_one = 0;
  live(2, [](Member& one) { one.train_to(5); });
  EXPECT_THAT(errors(), Each(AllOf(testing::StartsWith("78 "), HasSubstr("learning_rate"))));
  EXPECT_THAT(member(1).error, HasSubstr("rank 0: "));
}

// Nothing but a checkpoint knew the options: the first preemption ended a run that had trained apart.
TEST_F(Together, RanksWithOtherOptionsDoNotBeginAFreshRun) {
  for (const int other : {1, 2, 0}) {
    odd_one = other;
    live(3, [](Member& one) { one.train_to(5); });
    EXPECT_THAT(errors(), Each(AllOf(testing::StartsWith("78 "), HasSubstr("options.learning_rate is 0."))));
    const std::string odd = "is 0.2 on rank " + std::to_string(other) + " and 0.1 on rank 0";
    EXPECT_THAT(errors(), Each(HasSubstr(other == 0 ? "and 0.2 on rank 0" : odd)));
    EXPECT_EQ(volume->disk.open_directory(kRun, false), nullptr) << "nothing was made";
  }
}

TEST_F(Together, AnOverrideAcceptsWhatDiffersAtAFreshStart) {
  odd_one = 1;
  options.start.overrides = {"learning_rate"};
  test::CapturedLog log;
  live(2, [](Member& one) {
    one.train_to(3);
    one.finish();
  });
  expect_all_ended(0);
  EXPECT_THAT(log.text(), HasSubstr("options.learning_rate is 0.2 on rank 1 and 0.1 on rank 0"));
}

// A resume would give every rank what rank 0 had.
TEST_F(Together, AValueOfARanksOwnIsNamedAtAFreshStart) {
  before = [](Member& one) {
    one.source.extra["mine"] = std::to_string(one.rank);
    one.source.digests = {{"dice/value", std::to_string(one.rank)}, {"world/value", "the same"}};
  };
  test::CapturedLog log;
  live(2, [](Member& one) {
    one.train_to(3);
    one.finish();
  });
  expect_all_ended(0);
  EXPECT_THAT(log.text(), HasSubstr("rank 1 has other values than rank 0, whose values each checkpoint holds "
                                    "for all ranks: dice/value, extra.mine\n"));
}

// The rank on its host in place of the rank: nothing else would say that half of the samples train nothing.
TEST_F(Together, RanksThatReadTheSameSamplesAreNamed) {
  for (const bool right : {true, false}) {
    before = [right](Member& one) { one.source.shard = Shard{right ? one.rank : one.rank % 2, 4}; };
    test::CapturedLog log;
    live(4, [](Member& one) {
      one.train_to(3);
      one.finish();
    });
    expect_all_ended(0);
    const std::string text = log.text();
    const std::string told = "same samples: rank 2 those of rank 0, rank 3 those of rank 1. Give each";
    EXPECT_EQ(text.find(told) == std::string::npos, right) << text;
    EXPECT_EQ(text.find("same samples"), text.rfind("same samples")) << "rank 0 tells it, once";
    start_over();
  }
}

// Where one rank trains on two GPUs and the others on one. Their first save would fail, and every later one.
TEST_F(Together, RanksWithOtherRandomStreamsDoNotBegin) {
  more_streams = 1;
  live(3, [](Member& one) { one.train_to(5); });
  EXPECT_THAT(errors(), Each(AllOf(testing::StartsWith("64 "), HasSubstr("needs the same random streams"))));
}

TEST_F(Together, ARankThatIsBlindOfARequiredSourceKeepsAFreshRunFromBeingClaimed) {
  for (blind_one = 1; blind_one >= 0; --blind_one) {
    live(2, [](Member&) {});
    EXPECT_THAT(errors(), Each(AllOf(testing::StartsWith("78 "), HasSubstr("source ec2 is required"))));
    EXPECT_THAT(member(1 - blind_one).error, HasSubstr("rank " + std::to_string(blind_one) + ": "));
    EXPECT_EQ(volume->disk.open_directory(kRun, false), nullptr) << "nothing was made";
  }
}

TEST_F(Together, APromiseThatOneRankWithdrawsIsNobodys) {
  live(2, [](Member& one) {
    one.train_to(3);
    one.finish();
  });
  other_threads = 1;
  live(2, [](Member& one) { one.finish(); });
  EXPECT_THAT(errors(), Each(std::string()));
  for (const auto& one : members) EXPECT_FALSE(one->resumed.bit_exact) << one->rank;
}

TEST_F(Together, TextsBetweenRanksAreForgotten) {
  options.every = {SaveEvery::steps(2)};
  step_time = 10min;  // nobody waits so long for a text
  live(3, [](Member& one) {
    one.train_to(60);
    one.finish();
  });
  EXPECT_THAT(errors(), Each(std::string()));
  EXPECT_GE(member(0).saved.size(), 15U);
  EXPECT_LE(world->texts(), 14) << "those of the start";
}

TEST_F(Together, WhatIsReceivedIsVerified) {
  live(2, [](Member& one) {
    one.train_to(3);
    one.finish();
  });
  corrupt_for = 1;
  live(2, [](Member& one) { one.train_to(5); });
  EXPECT_THAT(errors(), Each(AllOf(testing::StartsWith("74 "), HasSubstr("rank 0 sent something else"))));
}

// Announced to the last rank alone: a save at once, steps, a save just before the end, and a pause; the
// machine lives, and they go on.
TEST_F(Together, AnAnnouncedEndIsPlannedByRankZeroForAll) {
  live(3, [](Member& one) {
    one.train_to(5);
    if (one.rank == 2) one.announcer.deadline(one.clock.now() + 60s);
    one.train_to(60);
    one.finish();
  });
  expect_all_ended(0);
  EXPECT_THAT(steps(), Each(60));
  ASSERT_GE(member(0).saved.size(), 2U);
  EXPECT_EQ(member(0).saved.front(), 8) << "told at 6, known to rank 0 at 7 and voted, done at 8";
  EXPECT_EQ(member(0).saved[1], 32) << "a step before the last boundary with four spare seconds";
  EXPECT_GE(member(0).clock.slept(), 170s) << "60 steps, and it has waited";
}

}}  // namespace holdfast::test
