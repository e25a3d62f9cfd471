#include "holdfast/data/global_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "holdfast/base/error.h"

namespace holdfast { namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string refusal(std::int64_t global, std::int64_t ranks, std::int64_t most) {
  try {
    return "not refused: " + to_text(divide_batch(global, ranks, most));
  } catch (const UsageError& error) {
    return error.what();
  }
}

TEST(GlobalBatch, IsDividedIntoTheFewestPassesAndSaysSo) {
  EXPECT_EQ(to_text(divide_batch(128, 1)), "global batch 128 = 1 rank × 128");
  EXPECT_EQ(to_text(divide_batch(128, 4)), "global batch 128 = 4 ranks × 32");
  EXPECT_EQ(to_text(divide_batch(128, 2, 32)), "global batch 128 = 2 ranks × 32 × 2 micro-batches");
  EXPECT_EQ(divide_batch(128, 1, 128), (BatchShare{1, 128, 1}));
  EXPECT_EQ(divide_batch(128, 1, 127), (BatchShare{1, 64, 2}));
  EXPECT_EQ(divide_batch(90, 1, 50), (BatchShare{1, 45, 2}));
  EXPECT_EQ(divide_batch(75, 1, 40), (BatchShare{1, 25, 3})) << "two passes would be unequal";
  EXPECT_EQ(divide_batch(7, 7, 1), (BatchShare{7, 1, 1}));
}

TEST(GlobalBatch, EveryDivisionIsWholeAndHasRoom) {
  int divided = 0;
  for (std::int64_t global = 1; global <= 200; ++global) {
    for (std::int64_t ranks = 1; ranks <= 9; ++ranks) {
      for (const std::int64_t most : {0, 1, 3, 32, 200}) {
        try {
          const BatchShare share = divide_batch(global, ranks, most);
          ++divided;
          EXPECT_EQ(share.ranks, ranks);
          EXPECT_EQ(share.global(), global);
          EXPECT_GE(share.batch_size, 1);
          if (most > 0) {
            EXPECT_LE(share.batch_size, most);
            EXPECT_TRUE(share.accumulation == 1 || 2 * share.batch_size * 2 > most) << to_text(share);
          }
        } catch (const UsageError&) {
          EXPECT_TRUE(global % ranks != 0 || most == 3 || most == 32)
              << global << " " << ranks << " " << most;
        }
      }
    }
  }
  EXPECT_GT(divided, 2000);
}

TEST(GlobalBatch, WhatDoesNotDivideIsRefusedWithWhatDoes) {
  EXPECT_EQ(refusal(128, 3, 0),
            "a global batch of 128 does not divide by 3 ranks: make it 126 or 129, or start 2 or 4 ranks");
  EXPECT_THAT(refusal(2, 8, 0), AllOf(HasSubstr("make it 8,"), HasSubstr("start 2 ranks")));
  EXPECT_THAT(refusal(127, 5, 0), HasSubstr("make it 125 or 130, or start 1 rank"));
  EXPECT_THAT(refusal(254, 2, 64),
              AllOf(HasSubstr("leaves 127 to each of 2 ranks"), HasSubstr("make it 252 or 256")));
  // What it names is right.
  for (const std::int64_t global : {126, 129, 252, 256}) {
    EXPECT_NO_THROW(divide_batch(global, global < 200 ? 3 : 2, 64));
  }
  EXPECT_THAT(refusal(0, 2, 0), HasSubstr("not 0"));
  EXPECT_THAT(refusal(8, 0, 0), HasSubstr("not 0"));
  EXPECT_THAT(refusal(8, 2, -1), HasSubstr("not -1"));
  EXPECT_THAT(refusal(std::numeric_limits<std::int64_t>::max(), 2, 0),
              HasSubstr("make it 9223372036854775806,"));
}

}}  // namespace holdfast
