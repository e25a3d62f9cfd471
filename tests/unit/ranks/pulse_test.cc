// Signs of life, of threads that are ranks.
#include "holdfast/ranks/pulse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "support/memory_store.h"

namespace holdfast { namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::IsEmpty;

template <class Condition>
bool comes(const Condition& condition) {
  for (int i = 0; i < 60'000 && !condition(); ++i) std::this_thread::sleep_for(1ms);
  return condition();
}

class Pulses : public testing::Test {
 protected:
  std::unique_ptr<Pulse> begin(int rank, int count) {
    return std::make_unique<Pulse>(store, "p/", rank, count, PulseOptions{50ms, 40}, [this] { ++losses; });
  }
  void start(int count) {
    for (int rank = 0; rank < count; ++rank) pulses.push_back(begin(rank, count));
  }
  const std::shared_ptr<test::MemoryStore> store = std::make_shared<test::MemoryStore>();
  std::atomic<int> losses{0};
  std::vector<std::unique_ptr<Pulse>> pulses;
};

TEST_F(Pulses, WhoFallsSilentIsLostForAllOthers) {
  start(4);
  std::this_thread::sleep_for(4s);  // twice as long as a silence may last
  for (const auto& pulse : pulses) EXPECT_THAT(pulse->lost(), IsEmpty());
  EXPECT_EQ(losses, 0);
  pulses[2]->end();
  for (const int rank : {0, 1, 3}) {
    const Pulse& pulse = *pulses[static_cast<std::size_t>(rank)];
    EXPECT_TRUE(comes([&] { return !pulse.lost().empty(); }));
    EXPECT_THAT(pulse.lost(), ElementsAre(2));
    EXPECT_THAT(pulse.silent_for(150ms), ElementsAre(2));
    EXPECT_TRUE(pulse.alarm()->rank);
    EXPECT_FALSE(pulse.alarm()->store);
  }
  EXPECT_TRUE(comes([&] { return losses == 3; }));
  EXPECT_THAT(pulses[2]->lost(), IsEmpty()) << "it has ended, and judges nobody";
}

TEST_F(Pulses, OfASilentRankZeroTheOthersKnowAsWell) {
  start(3);
  std::this_thread::sleep_for(300ms);
  pulses[0]->end();
  for (const int rank : {1, 2}) {
    const Pulse& pulse = *pulses[static_cast<std::size_t>(rank)];
    EXPECT_TRUE(comes([&] { return !pulse.lost().empty(); }));
    EXPECT_THAT(pulse.lost(), ElementsAre(0));
    EXPECT_TRUE(pulse.alarm()->store);
  }
}

// Of the ranks of a machine one hears that it is about to stand still.
TEST_F(Pulses, AnAnnouncedSilenceIsBorneUntilItIsOver) {
  start(3);
  const auto goes_by = [&](const std::string& pulse) {
    return comes(
        [&] { return store->has("p/pulse") && store->text("p/pulse").find(pulse) != std::string::npos; });
  };
  pulses[2]->expect_silence(60s);
  ASSERT_TRUE(goes_by(" 1200"));
  pulses[1]->end();
  std::this_thread::sleep_for(4s);
  for (const auto& pulse : pulses) EXPECT_THAT(pulse->lost(), IsEmpty());
  pulses[2]->expect_silence(0s);
  for (const int rank : {0, 2}) {
    const Pulse& pulse = *pulses[static_cast<std::size_t>(rank)];
    EXPECT_TRUE(comes([&] { return !pulse.lost().empty(); }));
    EXPECT_THAT(pulse.lost(), ElementsAre(1));
  }
}

TEST_F(Pulses, OfRankZeroAsWell) {
  start(2);
  pulses[0]->expect_silence(60s);
  ASSERT_TRUE(comes([&] { return store->has("p/pulse") && store->text("p/pulse").find(" 1200") < 9; }));
  std::this_thread::sleep_for(1s);  // until rank 1 has read it
  pulses[0]->end();
  std::this_thread::sleep_for(4s);
  EXPECT_THAT(pulses[1]->lost(), IsEmpty());
}

// A rank that dies right after it met the others is missed as soon as any other, also where rank 0 began later.
TEST_F(Pulses, ARankThatEndsAfterItsFirstSignIsLostAtOnce) {
  begin(1, 3)->end();
  EXPECT_TRUE(store->has("p/beat/1"));
  const std::unique_ptr<Pulse> zero = begin(0, 3);
  // Rank 2 has given no sign yet and may still load its libraries: it gets five times as long.
  EXPECT_TRUE(comes([&] { return !zero->lost().empty(); }));
  EXPECT_THAT(zero->lost(), ElementsAre(1));
}

// Rank 0 begins after others, and keeps what they said.
TEST_F(Pulses, WhatWasSaidBeforeRankZeroBeganIsHeard) {
  const std::unique_ptr<Pulse> early = begin(1, 2);
  early->expect_silence(60s);
  early->call(true);
  ASSERT_TRUE(comes([&] { return store->has("p/beat/1") && store->text("p/beat/1").size() > 10; }));
  const std::unique_ptr<Pulse> zero = begin(0, 2);
  EXPECT_TRUE(comes([&] { return zero->called(); }));
  EXPECT_TRUE(comes([&] { return store->text("p/pulse").find(" 1200") != std::string::npos; }));
  EXPECT_THAT(zero->lost(), IsEmpty());
}

TEST_F(Pulses, RankZeroKnowsThatAnotherCalls) {
  start(3);
  pulses[0]->call(true);  // itself: nobody's news
  pulses[1]->expect_silence(60s);
  pulses[2]->call(true);
  EXPECT_TRUE(comes([&] { return pulses[0]->called(); }));
  pulses[2]->call(false);
  EXPECT_TRUE(comes([&] { return !pulses[0]->called(); }));
  for (const auto& pulse : pulses) EXPECT_THAT(pulse->lost(), IsEmpty());
}

}}  // namespace holdfast
