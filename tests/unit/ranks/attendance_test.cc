// Ranks that meet in rank 0's store, and in one which outlives them: torchrun's agents keep it over all starts.
#include "holdfast/ranks/attendance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/ranks/rank_channel.h"
#include "support/memory_store.h"

namespace holdfast { namespace {

using namespace std::chrono_literals;
using testing::Each;
using testing::ThrowsMessage;

constexpr Duration kEnough = 5min;

// Of a rank 0 that ends when it sees that the others have read its verdict: their next call has no answer.
class StoreThatEndsWhenRead final : public test::MemoryStore {
 public:
  void append(const std::string& key, const std::string& text) override {
    MemoryStore::append(key, text);
    if (key == "p/read") close(true);
  }
};

class AgentsStore : public testing::Test {
 protected:
  static LaunchEnvironment place_of(int rank, int world_size) {
    LaunchEnvironment place;
    place.rank = rank;
    place.world_size = world_size;
    place.job = "job";
    place.agent_keeps_store = true;
    return place;
  }
  // As meet() does it. The prefix of the rank's keys.
  std::string come(int rank, int world_size) {
    while (true) {
      StoreLine line(store_, "p/");
      if (attend(place_of(rank, world_size), Clock::real().now() + kEnough, kEnough, line))
        return line.prefix();
      std::this_thread::sleep_for(10ms);
    }
  }
  std::vector<std::string> all_come(int world_size) {
    std::vector<std::string> prefixes(static_cast<std::size_t>(world_size));
    {
      std::vector<std::jthread> threads;
      for (int rank = 0; rank < world_size; ++rank) {
        threads.emplace_back(
            [&, rank] { prefixes[static_cast<std::size_t>(rank)] = come(rank, world_size); });
      }
    }
    return prefixes;
  }

  const std::shared_ptr<test::MemoryStore> store_ = std::make_shared<test::MemoryStore>();
};

// A host that comes back makes torchrun restart all ranks, and it does not count that as a restart.
TEST_F(AgentsStore, EachStartHasKeysOfItsOwn) {
  EXPECT_THAT(all_come(4), Each("p/1/"));
  EXPECT_THAT(all_come(2), Each("p/2/"));
  EXPECT_THAT(all_come(4), Each("p/3/"));
}

TEST_F(AgentsStore, AProcessThatEndedBeforeTheStartIsNotHere) {
  store_->add("p/knock/3/2", 1);
  std::jthread zero([this] { EXPECT_EQ(come(0, 3), "p/1/"); });
  std::jthread one([this] { EXPECT_EQ(come(1, 3), "p/1/"); });
  StoreLine line(store_, "p/");
  EXPECT_TRUE(line.wait("admit/3/2/1", kEnough));
  EXPECT_FALSE(store_->has("p/1/verdict"));
  EXPECT_EQ(come(2, 3), "p/1/");
}

// It may have been let in by a rank 0 that was about to be restarted.
TEST_F(AgentsStore, ARankLeavesAStartThatBeganAnew) {
  StoreLine line(store_, "p/");
  line.add("starts", 1);
  line.set("1/who", "job of 2 ranks");
  line.set("admit/2/1/1", "1");
  std::jthread one([this] { EXPECT_EQ(come(1, 2), "p/2/"); });
  EXPECT_TRUE(line.wait("1/here", kEnough));
  EXPECT_EQ(come(0, 2), "p/2/");
}

class OwnStore : public testing::Test {
 protected:
  bool come(int rank, int world_size) { return come(store_, rank, world_size); }
  static bool come(const std::shared_ptr<RankStore>& store, int rank, int world_size) {
    LaunchEnvironment place;
    place.rank = rank;
    place.world_size = world_size;
    place.master_address = "gpu1";
    place.master_port = 1;
    place.job = "job";
    StoreLine line(store, "p/");
    return attend(place, Clock::real().now() + kEnough, kEnough, line);
  }
  // Until a process of that rank is here.
  void wait_for(const std::string& text) {
    while (store_->peek("p/here").value_or("").find(text) == std::string::npos) {
      std::this_thread::sleep_for(1ms);
    }
  }
  const std::shared_ptr<test::MemoryStore> store_ = std::make_shared<test::MemoryStore>();
};

// One host of three is restarted while the ranks wait for another one.
TEST_F(OwnStore, ARankThatEndedBeforeAllHadComeComesAgain) {
  store_->add("p/come/1", 1);
  bring(*store_, "p/here", 1, 3, "1");
  std::jthread zero([&] { EXPECT_TRUE(come(0, 3)); });
  std::jthread again([&] { EXPECT_TRUE(come(1, 3)); });
  wait_for("1 1:2");
  EXPECT_TRUE(come(2, 3));
}

TEST_F(OwnStore, TwoProcessesOfOneRankThatLiveAreNamed) {
  std::jthread zero([&] { EXPECT_THROW(come(0, 3), GroupError); });
  std::jthread older([&] { EXPECT_THROW(come(1, 3), UsageError); });
  wait_for("1 1:1");
  EXPECT_THROW(come(1, 3), GroupError) << "as all others hear it";
}

// Its start goes on with a newer process of its rank.
TEST_F(OwnStore, AProcessThatIsNotMeantEnds) {
  store_->add("p/come/1", 1);
  store_->set("p/who", "job of 2 ranks");
  std::jthread older([&] { EXPECT_THROW(come(1, 2), UsageError); });
  wait_for("1 1:2");
  store_->set("p/verdict", "go 1:3");
}

TEST_F(OwnStore, AProcessThatComesTooLateBelongsToTheNextStart) {
  store_->add("p/come/1", 1);
  store_->set("p/who", "job of 2 ranks");
  std::jthread late([&] { EXPECT_FALSE(come(1, 2)); });
  wait_for("1 1:2");
  store_->set("p/verdict", "go");
  EXPECT_FALSE(come(1, 2)) << "nor does this one";
}

TEST_F(OwnStore, TheVerdictIsSaidAlsoIfRank0EndsAsSoonAsItWasRead) {
  const auto store = std::make_shared<StoreThatEndsWhenRead>();
  store->set("p/who", "job of 2 ranks");
  store->set("p/verdict", "rank 2 of 3 did not come");
  EXPECT_THAT([&] { come(store, 1, 2); }, ThrowsMessage<GroupError>("rank 2 of 3 did not come"));
}

}}  // namespace holdfast
