// Calls of a run's store that always end, and the names of ranks.
#include "holdfast/ranks/store_line.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "holdfast/ranks/rank_names.h"
#include "support/memory_store.h"

namespace holdfast { namespace {

using namespace std::chrono_literals;

TEST(RankNames, InWords) {
  EXPECT_EQ(ranks_in_words(std::vector{3}), "rank 3");
  EXPECT_EQ(ranks_in_words(std::vector{1, 2}), "ranks 1 and 2");
  EXPECT_EQ(ranks_in_words(std::vector{1, 2, 5}), "ranks 1, 2 and 5");
  EXPECT_EQ(ranks_in_words(std::vector{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}),
            "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more");
}

TEST(StoreLine, EveryCallOfAStoreHasAnEnd) {
  const auto released = std::make_shared<std::atomic<bool>>(false);
  const auto over = std::make_shared<std::atomic<bool>>(false);
  EXPECT_THROW(within(10ms,
                      [=] {
                        while (!*released) std::this_thread::sleep_for(1ms);
                        *over = true;
                      }),
               SilentStore);
  EXPECT_FALSE(*over);
  *released = true;
  for (int i = 0; i < 30'000 && !*over; ++i) std::this_thread::sleep_for(1ms);
  EXPECT_TRUE(*over) << "it is left behind, not ended";
  EXPECT_THROW(within(1min, [] { throw UsageError("its own"); }), UsageError);
}

TEST(StoreLine, GathersATextOfEachRank) {
  const auto store = std::make_shared<test::MemoryStore>();
  StoreLine line = StoreLine(store, "p/").below("1");
  line.bring("here", 2, 3, "two 2:and more");
  line.bring("here", 0, 3);
  EXPECT_EQ(line.absent("here", 3, 0s), (std::vector{1}));
  EXPECT_EQ(line.absent("here", std::vector{0, 1}, 10ms), (std::vector{1}));
  EXPECT_EQ(line.came("here"), (RankTexts{{0, ""}, {2, "two 2:and more"}}));
  std::jthread last([line]() mutable { line.bring("here", 1, 3, "one"); });
  EXPECT_EQ(line.absent("here", 3, 1min), (std::vector<int>{}));
  EXPECT_EQ(line.absent("here", std::vector{0, 1}, 1min), (std::vector<int>{}));
  EXPECT_EQ(line.came("here").at(1), "one");
  last.join();
  line.forget("here");
  EXPECT_EQ(store->size(), 0U);
}

TEST(StoreLine, ALostRankEndsWaitsAndALostStoreAllCalls) {
  const auto store = std::make_shared<test::MemoryStore>();
  const auto alarm = std::make_shared<Alarm>();
  StoreLine line(store, "p/");
  line.heed(alarm);
  alarm->rank = true;
  EXPECT_EQ(line.wait("never", 1h), std::nullopt);
  EXPECT_EQ(line.wait("never", 10ms, true), std::nullopt);
  EXPECT_EQ(line.absent("never", std::vector{1}, 1h), (std::vector{1}));
  store->close(true);
  EXPECT_THROW(line.add("key", 1), SilentStore);
  store->close(false);
  EXPECT_THROW(line.peek("key"), SilentStore) << "it is dead";
}

}}  // namespace holdfast
