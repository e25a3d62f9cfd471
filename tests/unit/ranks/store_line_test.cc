// Calls of a run's store that always end, and the names of ranks.
#include "holdfast/ranks/store_line.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "holdfast/ranks/rank_names.h"

namespace holdfast { namespace {

using namespace std::chrono_literals;

TEST(RankNames, InWordsAndKeys) {
  EXPECT_EQ(ranks_in_words(std::vector{3}), "rank 3");
  EXPECT_EQ(ranks_in_words(std::vector{1, 2}), "ranks 1 and 2");
  EXPECT_EQ(ranks_in_words(std::vector{1, 2, 5}), "ranks 1, 2 and 5");
  EXPECT_EQ(ranks_in_words(std::vector{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}),
            "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more");
  EXPECT_EQ(ranks_of_keys(keys_of_ranks("here", 3)), (std::vector{0, 1, 2}));
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

}}  // namespace holdfast
