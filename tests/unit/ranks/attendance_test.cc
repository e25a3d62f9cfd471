// Ranks that meet in rank 0's store, and in one which outlives them: torchrun's agents keep it over all starts.
#include "holdfast/ranks/attendance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/ranks/store_connection.h"
#include "holdfast/ranks/store_server.h"
#include "support/memory_store.h"

namespace holdfast { namespace {

using namespace std::chrono_literals;
using testing::Each;

constexpr Duration kEnough = 5min;

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
  EXPECT_THAT(line.missing({"admit/3/2/1"}, kEnough), testing::IsEmpty());
  EXPECT_FALSE(store_->check({"p/1/verdict"}));
  EXPECT_EQ(come(2, 3), "p/1/");
}

// It may have been let in by a rank 0 that was about to be restarted.
TEST_F(AgentsStore, ARankLeavesAStartThatBeganAnew) {
  StoreLine line(store_, "p/");
  line.add("starts", 1);
  line.set("1/who", "job of 2 ranks");
  line.set("admit/2/1/1", "1");
  std::jthread one([this] { EXPECT_EQ(come(1, 2), "p/2/"); });
  EXPECT_THAT(line.missing({"1/here/1"}, kEnough), testing::IsEmpty());
  EXPECT_EQ(come(0, 2), "p/2/");
}

// One host of three is restarted while the ranks wait for another one.
TEST(Attendance, ARankThatEndedBeforeAllHadComeComesAgain) {
  auto listening = listen_at("127.0.0.1", 0);
  const StoreConnection::Place where{"127.0.0.1", own_end(listening->get()).second, "secret"};
  const StoreServer server(std::move(*listening), where.secret);
  const auto come = [&](int rank, const std::shared_ptr<StoreConnection>& connection) {
    LaunchEnvironment place;
    place.rank = rank;
    place.world_size = 3;
    place.job = "job";
    StoreLine line(connection, "p/");
    return attend(place, Clock::real().now() + kEnough, kEnough, line);
  };
  const auto connect = [&] { return std::make_shared<StoreConnection>(where, kEnough); };
  std::jthread zero([&] { EXPECT_TRUE(come(0, connect())); });
  const auto first = connect();
  std::jthread one([&] { EXPECT_THROW(come(1, first), SilentStore); });
  EXPECT_THAT(connect()->missing({"p/here/1"}, kEnough, [] { return false; }), testing::IsEmpty());
  first->shut();
  one.join();
  std::jthread again([&] { EXPECT_TRUE(come(1, connect())); });
  // Otherwise rank 0 may take the dead process for the rank, and loses it a little later.
  for (const auto looker = connect(); looker->add("p/come/1", 0) < 2;) std::this_thread::sleep_for(1ms);
  EXPECT_TRUE(come(2, connect()));
}

}}  // namespace holdfast
