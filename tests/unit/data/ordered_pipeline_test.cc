#include "holdfast/data/internal/ordered_pipeline.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <stdexcept>
#include <string>

namespace {

using namespace std::chrono_literals;
using Pipeline = holdfast::internal::OrderedPipeline<int, std::string>;

Pipeline::Take count_to(int limit, int& next) {
  return
      [limit, &next]() -> std::optional<int> { return next < limit ? std::optional(next++) : std::nullopt; };
}

TEST(OrderedPipeline, DeliversInOrderForAnyWorkersAndDepth) {
  for (const int workers : {0, 1, 2, 5}) {
    for (const int depth : {1, 2, 7}) {
      int next = 0;
      Pipeline pipeline(
          count_to(60, next),
          [](const int& ticket) {
            if (ticket % 3 == 0) std::this_thread::sleep_for(200us);  // later ones are ready earlier
            return std::to_string(ticket);
          },
          workers, depth);
      for (int i = 0; i < 60; ++i) {
        const auto made = pipeline.next();
        ASSERT_TRUE(made);
        EXPECT_EQ(made->first, i);
        EXPECT_EQ(made->second, std::to_string(i));
      }
      EXPECT_FALSE(pipeline.next());
      EXPECT_FALSE(pipeline.next());
    }
  }
}

TEST(OrderedPipeline, NeverRunsAheadFurtherThanItsDepth) {
  int next = 0;
  std::atomic<int> made{0};
  Pipeline pipeline(
      count_to(1000, next), [&](const int& ticket) { return ++made, std::to_string(ticket); }, 4, 3);
  for (int delivered = 0; delivered < 20; ++delivered) {
    std::this_thread::sleep_for(1ms);
    EXPECT_LE(made, delivered + 3);
    pipeline.next();
  }
}

TEST(OrderedPipeline, ThrowsAtTheRightPlaceAndGoesOnThrowing) {
  for (const int workers : {0, 3}) {
    int next = 0;
    std::atomic<bool> broken{false};
    Pipeline pipeline(
        count_to(10, next),
        [&](const int& ticket) {
          if (ticket == 4 && !broken.exchange(true)) throw std::runtime_error("broken");  // would work again
          return std::to_string(ticket);
        },
        workers, 6);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(pipeline.next()->first, i);
    EXPECT_THROW(pipeline.next(), std::runtime_error);
    EXPECT_THROW(pipeline.next(), std::runtime_error);
  }
}

TEST(OrderedPipeline, EndsAtOnceWithWorkUnderWay) {
  for (int round = 0; round < 50; ++round) {
    int next = 0;
    Pipeline pipeline(
        count_to(1'000'000, next), [](const int& ticket) { return std::to_string(ticket); }, 3, 4);
    for (int i = 0; i < round % 5; ++i) pipeline.next();
  }
}

TEST(OrderedPipeline, WorksInParallel) {
  // Two workers that wait for each other: with one at a time this would never end.
  int next = 0;
  std::atomic<int> inside{0};
  Pipeline pipeline(
      count_to(2, next),
      [&](const int& ticket) {
        ++inside;
        while (inside < 2) std::this_thread::yield();
        return std::to_string(ticket);
      },
      2, 2);
  EXPECT_EQ(pipeline.next()->second, "0");
  EXPECT_EQ(pipeline.next()->second, "1");
}

}  // namespace
