// Who is named when a rank is lost, and who is not.
#include "holdfast/ranks/roll_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/memory_store.h"

namespace holdfast { namespace {

using namespace std::chrono_literals;
using testing::SizeIs;
using testing::StartsWith;

class RollCalls : public testing::Test {
 protected:
  void start(int count, int looks = 16) {
    for (int rank = 0; rank < count; ++rank) {
      pulses.push_back(std::make_shared<Pulse>(store, "p/", rank, count, PulseOptions{50ms, looks}));
    }
    std::this_thread::sleep_for(500ms);  // all have given a sign
  }
  // As rank 1 says it.
  std::string who() {
    StoreLine line(store, "p/");
    line.heed(pulses[1]->alarm());
    return RollCall(line, pulses[1], 1, static_cast<int>(pulses.size())).who();
  }
  void say(const std::string& key) { store->set("p/" + key, ""); }
  void answer(int rank) { bring(*store, "p/alive", rank, static_cast<int>(pulses.size()), ""); }
  template <class Condition>
  static bool comes(const Condition& condition) {
    for (int i = 0; i < 60'000 && !condition(); ++i) std::this_thread::sleep_for(1ms);
    return condition();
  }
  const std::shared_ptr<test::MemoryStore> store = std::make_shared<test::MemoryStore>();
  std::vector<std::shared_ptr<Pulse>> pulses;
};

TEST_F(RollCalls, BusyRanksAreNotNamed) {
  start(4);
  pulses[2]->end();
  EXPECT_THAT(who(), StartsWith("rank 2 died, hangs or cannot be reached")) << "0 and 3 do not answer";
}

TEST_F(RollCalls, BusyRanksAreNotNamedWhenThereIsNoVerdictYet) {
  start(4, 400);
  pulses[2]->end();
  EXPECT_THAT(who(), StartsWith("rank 2 died, hangs or cannot be reached"));
  EXPECT_THAT(pulses[1]->lost(), SizeIs(0));
}

TEST_F(RollCalls, WhoHasNoticedAsWellIsNotNamed) {
  start(4);
  answer(3);
  pulses[2]->end();
  pulses[3]->end();
  EXPECT_TRUE(comes([&] { return pulses[1]->silent_for(800ms).size() == 2; }));
  EXPECT_TRUE(comes([&] { return pulses[1]->alarm()->rank.load(); }));
  EXPECT_THAT(who(), StartsWith("rank 2 died, hangs or cannot be reached"));
}

TEST_F(RollCalls, WhoHasNoticedAndIsTheOnlyOneSilentIsNamed) {
  start(3);
  answer(2);
  pulses[2]->end();
  EXPECT_TRUE(comes([&] { return pulses[1]->alarm()->rank.load(); }));
  EXPECT_THAT(who(), StartsWith("rank 2 left, hangs or cannot be reached"));
}

TEST_F(RollCalls, WhoEndsWithAnErrorOfItsOwnSaysSo) {
  start(3);
  answer(0);
  say("gone/2");
  pulses[2]->end();
  EXPECT_THAT(who(), StartsWith("rank 2 ended with an error of its own"));
}

// Its last text says whose silence it was.
TEST_F(RollCalls, RankZeroThatLeftBecauseOfAnotherIsNotNamed) {
  start(3, 60);
  pulses[2]->end();
  EXPECT_TRUE(comes([&] { return !pulses[1]->silent_for(1250ms).empty(); }));
  store->close(true);
  EXPECT_THAT(who(), StartsWith("rank 2 died, hangs or cannot be reached"));
  EXPECT_THAT(pulses[1]->lost(), SizeIs(1));
}

TEST_F(RollCalls, RankZeroIsNamedWhenItsStoreEndsAndAllElseIsWell) {
  start(3);
  store->close(true);
  EXPECT_THAT(who(), StartsWith("rank 0 died, hangs or cannot be reached"));
}

// Through a network that is cut one way its answer would reach rank 0, which would then name nobody.
TEST_F(RollCalls, WhoHasLostRankZeroDoesNotAnswer) {
  start(2);
  pulses[0]->end();
  EXPECT_TRUE(comes([&] { return pulses[1]->alarm()->rank.load(); }));
  EXPECT_THAT(who(), StartsWith("rank 0 died, hangs or cannot be reached"));
  EXPECT_FALSE(store->has("p/alive"));
}

TEST_F(RollCalls, TheFirstAnswerHolds) {
  start(2);
  store->close(true);
  RollCall call(StoreLine(store, "p/"), pulses[1], 1, 2);
  const std::string first = call.who();
  pulses.clear();
  store->close(false);
  EXPECT_EQ(call.who(), first);
}

}}  // namespace holdfast
