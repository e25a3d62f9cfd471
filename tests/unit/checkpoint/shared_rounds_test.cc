// Saves that all ranks write together: their numbers, what rank 0 owes the others, and how long anyone waits.
#include "holdfast/checkpoint/internal/shared_rounds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "rank_rig.h"

namespace holdfast::test { namespace {

using internal::SharedRounds;
using testing::HasSubstr;

class SharedRoundsTest : public RankTest {
 protected:
  // Both see the volume.
  void share() {
    start();
    for (RankParts* rank : {zero.get(), one.get()}) rank->group.determine_volume({true, true});
    step();
  }
  void begin(const Agreed& agreed) {
    zero->rounds.begin(agreed);
    one->rounds.begin(agreed);
  }
  // What rank 0's first word about this round makes of it for the other rank.
  SharedOutcome heard() {
    return one->group.shared().stand_aside(1, "it has no share", one->rounds.number(), one->rounds.limits());
  }
  Duration patience(const RankParts& rank) { return rank.group.patience().end() - clock.now(); }
  // As votes would tell it. None has been posted here: ends count from the clock's beginning.
  static void end_at(RankParts& rank, std::optional<SteadyTime> end) {
    Agreed agreed;
    if (end) agreed.left = *end - SteadyTime{};
    rank.group.learn(agreed);
  }
  void announce(Duration left) {
    for (RankParts* rank : {zero.get(), one.get()}) {
      end_at(*rank, clock.now() + left);
      rank->rounds.limit_patience();
    }
  }
};

TEST_F(SharedRoundsTest, ARoundHasTheSameNumberOnAllRanks) {
  share();
  for (const std::uint64_t number : {1u, 2u}) {
    begin({.step = 1, .plan = 7});
    EXPECT_EQ(zero->rounds.plan(), 7);
    EXPECT_EQ(one->rounds.plan(), 7);
    EXPECT_EQ(zero->rounds.number(), number);
    EXPECT_EQ(one->rounds.number(), number);
    zero->rounds.end({});
    one->rounds.end({});
    EXPECT_EQ(zero->rounds.plan(), 0);
    begin({.step = 1, .alone = true, .plan = 7});
    EXPECT_EQ(zero->rounds.plan(), 0) << "rank 0 writes alone, which is no round";
  }
}

TEST_F(SharedRoundsTest, WhereNobodyElseSeesTheVolumeThereIsNoRound) {
  start();
  step();
  begin({.step = 1, .plan = 7});
  EXPECT_EQ(zero->rounds.plan(), 0);
  EXPECT_EQ(zero->rounds.number(), 0u);
  zero->rounds.end({});
  EXPECT_EQ(world.told(0), 0);
}

TEST_F(SharedRoundsTest, ASaveThatFailedBeforeTheWriterHadItIsToldWithItsReason) {
  share();
  begin({.step = 1, .plan = 7});
  zero->source.on_copy = [] { throw Error("planted"); };
  Decision decision;
  zero->engine.boundary_saves.save(decision, {.move = Move::commit});
  ASSERT_EQ(decision.save.status(), SaveStatus::failed);
  zero->rounds.end(decision);
  const SharedOutcome outcome = heard();
  EXPECT_EQ(outcome.kind, SharedOutcome::Kind::failed);
  EXPECT_THAT(outcome.reason, HasSubstr("planted"));
}

TEST_F(SharedRoundsTest, ASaveThatDidNotBeginIsNoFailure) {
  share();
  begin({.step = 1, .plan = 7});
  zero->rounds.end({});
  EXPECT_EQ(world.told(0), 1);
  EXPECT_THAT(heard().reason, Not(HasSubstr("it has no share")));
  zero->rounds.end({});
  EXPECT_EQ(world.told(0), 1) << "once";
}

TEST_F(SharedRoundsTest, WhatTheWriterHasTakenOverIsItsOwnToTell) {
  share();
  begin({.step = 1, .plan = 7});
  const internal::Staged staged = zero->engine.saves.stage_all();
  const WriteRequest request{.snapshot = staged.snapshot, .plan = staged.plan, .ancestry = {}};
  const auto led = zero->rounds.led(request, nullptr);
  ASSERT_TRUE(led);
  EXPECT_EQ(led->writers(), 1) << "without shares rank 0 writes alone, and tells that";
  zero->rounds.handed_over();
  EXPECT_FALSE(zero->rounds.led(request, nullptr)) << "one save for each round";
  zero->rounds.end({});
  EXPECT_EQ(world.told(0), 0);
  EXPECT_FALSE(one->rounds.led(request, nullptr)) << "the others follow";
}

TEST_F(SharedRoundsTest, NobodyIsWaitedForUntilARankCountsAsLost) {
  world.timeout = 60s;
  options.writing.write_limit = 100;
  start();
  const SharedWriteOptions limits = zero->rounds.limits();
  EXPECT_EQ(limits.begin_within, 30s);
  EXPECT_EQ(limits.reports_within, 30s);
  EXPECT_EQ(limits.how.write_limit, 50) << "the limit is the volume's";
}

TEST_F(SharedRoundsTest, BeforeAnEndTheLeaderKeepsTimeToWriteAlone) {
  share();
  zero->rounds.limit_patience();
  EXPECT_EQ(zero->group.patience().end(), SteadyTime::max());
  zero->run.costs.committed(10s);  // together; alone it takes twice as long
  const Duration agreement = zero->run.outlook.costs().agreement;
  announce(100s);
  EXPECT_EQ(patience(*zero), 100s - 20s - agreement);
  EXPECT_EQ(patience(*one), 100s) << "it waits for rank 0";
  announce(29s);
  EXPECT_EQ(patience(*zero), 29s) << "no time for both: nothing better to do than to wait";
  zero->group.learn({.alone = true});
  announce(100s);
  EXPECT_EQ(patience(*zero), 100s);
}

TEST_F(SharedRoundsTest, AnEndThatMovesIsSeen) {
  share();
  EXPECT_FALSE(zero->rounds.end_has_moved(1s));
  const SteadyTime end = clock.now() + 100s;
  end_at(*zero, end);
  EXPECT_TRUE(zero->rounds.end_has_moved(1s));
  zero->rounds.limit_patience();
  EXPECT_FALSE(zero->rounds.end_has_moved(1s));
  end_at(*zero, end - 1s);
  EXPECT_FALSE(zero->rounds.end_has_moved(1s)) << "the clocks' ticks";
  end_at(*zero, end - 1s - 1ms);
  EXPECT_TRUE(zero->rounds.end_has_moved(1s));
  end_at(*zero, std::nullopt);
  EXPECT_TRUE(zero->rounds.end_has_moved(1s));
}

TEST_F(SharedRoundsTest, AllFindOutTogetherWhoSeesTheVolume) {
  for (const bool sees : {true, false}) {
    MemoryWorld another(2);
    MemoryFileSystem nothing;
    FaultFileSystem view(volume.disk);
    CheckpointerOptions of_one = options;
    of_one.start.seams.file_system = sees ? static_cast<FileSystem*>(&view) : &nothing;
    RankParts leader(another.rank(0), options);
    RankParts follower(another.rank(1), of_one);
    leader.engine.start.claim(2, {});
    follower.run.started.record.attempt = leader.run.started.record.attempt;
    std::thread thread([&] { follower.rounds.find_volume(); });
    leader.rounds.find_volume();
    thread.join();
    EXPECT_EQ(leader.group.sharing(), sees);
    EXPECT_EQ(follower.group.sharing(), sees);
    EXPECT_EQ(leader.group.all_see(), sees);
  }
}

}}  // namespace holdfast::test
