// The losses of a few steps are found in a ledger of any length. That a resume reads little of a long one is
// tested in checkpoint/receipt_test.cc.
#include "holdfast/ledger/loss_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "holdfast/base/bits.h"
#include "support/memory_file_system.h"

namespace holdfast::test { namespace {

double loss_of(std::int64_t step) { return 1.0 / static_cast<double>(step); }

// A ledger with the losses of steps first..last, 1,000 in a line, and something else between the lines.
std::string ledger_of(std::int64_t first, std::int64_t last) {
  std::string text = "{\"event\":\"start\"}\n";
  for (std::int64_t from = first; from <= last; from += 1000) {
    text += R"({"event":"losses","from":)" + std::to_string(from) + R"(,"bits":")";
    for (std::int64_t step = from; step < from + 1000 && step <= last; ++step)
      text += bits_hex(loss_of(step));
    text += "\"}\n{\"event\":\"commit\",\"step\":" + std::to_string(from) + "}\n";
  }
  return text;
}

std::map<std::int64_t, double> expected(std::int64_t from, std::int64_t count) {
  std::map<std::int64_t, double> losses;
  for (std::int64_t step = from; step < from + count; ++step) losses[step] = loss_of(step);
  return losses;
}

class LossSearch : public testing::Test {
 protected:
  LossSearch() { disk_.mount("/vol"); }
  std::map<std::int64_t, double> search(const std::string& text, std::int64_t step, std::size_t most = 16) {
    disk_.put("/vol/ledger", text);
    return losses_after(*disk_.open_file("/vol/ledger", OpenMode::read), step, most);
  }
  MemoryFileSystem disk_;
};

TEST_F(LossSearch, FindsTheStepsAfterAnyStep) {
  const std::string text = ledger_of(101, 60'000);
  for (const std::int64_t step : {0, 100, 101, 999, 1000, 1100, 1101, 31'337, 59'900, 59'984}) {
    EXPECT_EQ(search(text, step), expected(std::max<std::int64_t>(step + 1, 101), 16)) << step;
  }
  EXPECT_EQ(search(text, 59'990), expected(59'991, 10));
  EXPECT_TRUE(search(text, 60'000).empty());
  EXPECT_TRUE(search("", 1).empty());
  EXPECT_EQ(search(text, 500, 3), expected(501, 3));
}

TEST_F(LossSearch, LooksPastWhatIsNoLoss) {
  std::string other;
  while (other.size() < 300'000) other += "{\"event\":\"source\",\"name\":\"ec2\"}\n";
  const std::string text = ledger_of(1, 20'000) + other + ledger_of(20'001, 40'000) + other +
                           std::string(200'000, 'x') + "\n" + ledger_of(40'001, 50'000) + "{\"torn";
  for (const std::int64_t step : {10, 19'990, 20'000, 39'990, 40'000, 49'000}) {
    EXPECT_EQ(search(text, step), expected(step + 1, 16)) << step;
  }
}

}}  // namespace holdfast::test
