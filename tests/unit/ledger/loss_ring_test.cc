#include "holdfast/ledger/loss_ring.h"

#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace holdfast { namespace {

std::vector<std::string> drained(LossRing& ring) {
  std::vector<std::string> lines;
  ring.drain([&](const std::string& line) { lines.push_back(line); });
  return lines;
}

TEST(LossRing, ConsecutiveStepsAreOneLine) {
  const auto ring = std::make_unique<LossRing>();
  EXPECT_TRUE(drained(*ring).empty());
  ring->push(1235, 0.1);
  ring->push(1236, -0.0);
  ring->push(1300, 2.0);
  EXPECT_EQ(drained(*ring), (std::vector<std::string>{
                                R"({"event":"losses","from":1235,"bits":"3fb999999999999a8000000000000000"})",
                                R"({"event":"losses","from":1300,"bits":"4000000000000000"})"}));
  EXPECT_TRUE(drained(*ring).empty());
}

TEST(LossRing, LinesReadBackToTheBit) {
  const auto ring = std::make_unique<LossRing>();
  std::map<std::int64_t, double> expected;
  for (std::int64_t step = 1; step <= 3000; ++step) {
    expected[step] = 1.0 / static_cast<double>(step);
    ring->push(step, expected[step]);
  }
  const auto lines = drained(*ring);
  EXPECT_GT(lines.size(), 1u);  // a torn last line may not cost everything
  EXPECT_EQ(losses_in(lines), expected);
}

TEST(LossRing, NotANumberIsLeftOut) {
  const auto ring = std::make_unique<LossRing>();
  ring->push(1, std::numeric_limits<double>::quiet_NaN());
  EXPECT_TRUE(drained(*ring).empty());
  ring->push(2, std::numeric_limits<double>::infinity());
  EXPECT_EQ(losses_in(drained(*ring)).size(), 1u);
}

TEST(LossRing, FullRingDropsTheNewest) {
  const auto ring = std::make_unique<LossRing>();
  for (std::size_t step = 1; step <= LossRing::kCapacity + 10; ++step) {
    ring->push(static_cast<std::int64_t>(step), 1.0);
  }
  const auto losses = losses_in(drained(*ring));
  EXPECT_EQ(losses.size(), LossRing::kCapacity);
  EXPECT_EQ(losses.rbegin()->first, static_cast<std::int64_t>(LossRing::kCapacity));
}

TEST(LossRing, ForeignAndTornLinesArePassedOver) {
  EXPECT_TRUE(losses_in({R"({"event":"commit","step":3})", "", R"({"event":"losses","from":)",
                         R"({"event":"losses","from":5,"bits":"3ff0"})",
                         R"({"event":"losses","from":5,"bits":"3ff0000000000000"} )"})
                  .empty());
  EXPECT_EQ(losses_in({R"({"event":"losses","from":5,"bits":"3ff0000000000000zzzzzzzzzzzzzzzz"})"}).size(),
            1u);
}

TEST(LossRing, StepsThatAreNoNumbersArePassedOver) {
  const auto line = [](const std::string& from) {
    return R"({"event":"losses","from":)" + from + R"(,"bits":"3ff00000000000004000000000000000"})";
  };
  EXPECT_TRUE(losses_in({line("9223372036854775807"), line("9223372036854775806"),
                         line("9223372036854775808"), line("-1")})
                  .empty());
  EXPECT_EQ(losses_in({line("9223372036854775805")}).size(), 2u);
}

TEST(LossRing, TheFirstRecordOfAStepCounts) {
  const auto losses = losses_in({R"({"event":"losses","from":5,"bits":"3ff0000000000000"})",
                                 R"({"event":"losses","from":5,"bits":"4000000000000000"})"});
  EXPECT_EQ(losses.at(5), 1.0);
}

// A volume that is away for a while.
TEST(LossRing, WhatCannotBeWrittenComesAgain) {
  const auto ring = std::make_unique<LossRing>();
  ring->push(1, 0.5);
  ring->push(7, 1.0);
  int lines = 0;
  EXPECT_THROW(ring->drain([&](const std::string&) {
    if (++lines == 2) throw std::runtime_error("away");
  }),
               std::runtime_error);
  ring->push(8, 2.0);
  EXPECT_EQ(losses_in(drained(*ring)), (std::map<std::int64_t, double>{{7, 1.0}, {8, 2.0}}));
}

TEST(LossRing, PushedAndDrainedAtOnce) {
  const auto ring = std::make_unique<LossRing>();
  std::atomic<bool> done{false};
  std::vector<std::string> lines;
  std::thread reader([&] {
    while (true) {
      const bool last = done.load();
      for (std::string& line : drained(*ring)) lines.push_back(std::move(line));
      if (last) break;
    }
  });
  for (std::int64_t step = 1; step <= 50'000; ++step) ring->push(step, static_cast<double>(step));
  done = true;
  reader.join();
  for (const auto& [step, loss] : losses_in(lines)) ASSERT_EQ(loss, static_cast<double>(step));
}

}}  // namespace holdfast
