// c10d's TCPStore as the ranks use it.
#include "holdfast/distributed/internal/c10d_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

#include "holdfast/ranks/gathering.h"

namespace holdfast { namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;

bool never() { return false; }

c10::intrusive_ptr<c10d::Store> tcp_store() {
  c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = true;
  options.waitWorkers = false;
  options.timeout = 5min;
  return c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
}

class Stores : public testing::TestWithParam<bool> {
 protected:
  const c10::intrusive_ptr<c10d::Store> kept =
      GetParam() ? tcp_store() : c10::intrusive_ptr<c10d::Store>(c10::make_intrusive<c10d::HashStore>());
  C10dStore store{kept, 2};
  C10dStore other{store.another(), 2}, waits{store.another(), 2};
};

TEST_P(Stores, KeepWhatTheRanksWrite) {
  EXPECT_EQ(store.peek("key"), std::nullopt);
  EXPECT_EQ(store.peek("key"), std::nullopt) << "a look leaves nothing";
  store.set("key", std::string("a\0b", 3));
  store.set("empty", "");
  EXPECT_THAT(store.get({"key", "empty"}), ElementsAre(std::string("a\0b", 3), ""));
  EXPECT_EQ(store.peek("key"), std::string("a\0b", 3));
  EXPECT_EQ(store.peek("empty"), "");
  store.append("list", "1 ");
  store.append("list", "2 ");
  EXPECT_EQ(store.add("count", 2), 2);
  EXPECT_EQ(other.add("count", -5), -3);
  EXPECT_EQ(other.peek("list"), "1 2 ");
  store.erase("key");
  EXPECT_EQ(store.peek("key"), std::nullopt);
}

TEST_P(Stores, WaitForAKeyWhileOtherThreadsGoOn) {
  EXPECT_EQ(store.wait("key", 10ms, never), std::nullopt);
  EXPECT_EQ(store.wait("key", 1h, [] { return true; }), std::nullopt);
  std::atomic<int> looks{0};
  EXPECT_EQ(store.wait("key", 1h, [&] { return ++looks == 3; }), std::nullopt) << "it is asked again";
  std::vector<std::jthread> threads;
  std::atomic<int> heard{0};
  threads.emplace_back([&] { heard += waits.await("key") == "text" ? 1 : 0; });
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] { heard += store.wait("key", 5min, never) == "text" ? 1 : 0; });
  }
  // None of these is held up, and none of them ends the others' waits.
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(store.peek("key"), std::nullopt);
    EXPECT_EQ(store.add("count", 1), i + 1);
  }
  EXPECT_EQ(heard, 0);
  other.set("key", "text");
  threads.clear();
  EXPECT_EQ(heard, 4);
}

// Whoever counts the last one finds all texts.
TEST_P(Stores, GatherTheTextsOfAllRanks) {
  constexpr int kRanks = 8;
  std::atomic<int> last{0};
  for (int round = 0; round < 50; ++round) {
    const std::string name = "texts/" + std::to_string(round);
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < kRanks; ++rank) {
      ranks.emplace_back([&, rank] {
        last += bring(store, name, rank, kRanks, std::to_string(rank),
                      [](const RankTexts& texts) { return std::to_string(texts.size()); })
                    ? 1
                    : 0;
      });
    }
    EXPECT_EQ(other.wait(gathered(name), 5min, never), "8");
  }
  EXPECT_EQ(last, 50);
}

INSTANTIATE_TEST_SUITE_P(Of, Stores, testing::Bool(),
                         [](const auto& info) { return std::string(info.param ? "Tcp" : "Hash"); });

TEST(TcpStore, ThatEndsEndsAllCalls) {
  auto kept = tcp_store();
  C10dStore client(kept->clone(), 2);
  EXPECT_EQ(client.add("count", 1), 1);
  std::atomic<int> asked{0};
  std::thread waiting([&] {
    EXPECT_THROW(client.wait("key", 5min,
                             [&] {
                               ++asked;
                               return false;
                             }),
                 StoreClosed);
  });
  while (asked < 2) std::this_thread::sleep_for(1ms);
  kept.reset();
  EXPECT_THROW(
      {
        client.add("count", 1);
        client.add("count", 1);
      },
      StoreClosed);
  waiting.join();
  testing::internal::CaptureStderr();
  EXPECT_THROW(client.set("key", "text"), StoreClosed);
  EXPECT_THROW(client.peek("key"), StoreClosed);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "c10d is not asked again";
}

// Agreement::tell() cuts longer texts.
TEST(TcpStore, TakesTextsOfAPiece) {
  C10dStore store(tcp_store(), 2);
  const std::string text(std::size_t{4} << 20, 'x');
  store.set("key", text);
  EXPECT_EQ(store.peek("key"), text);
}

}}  // namespace holdfast
