// The votes of ranks over Gloo: the maximum of each number, for all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "dist/ranks.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

TEST(Votes, BringTheMaximumOfAllToAll) {
  const TemporaryFolder folder;
  for (const int ranks : {2, 3, 7}) {
    const Ended ended = launch(ranks, story(folder.path() / "run", 0, {"votes=300"}));
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_THAT(said(ended, ranks, "wrong"), AllOf(SizeIs(ranks), Each("0"))) << ended.err;
    EXPECT_THAT(ended.err, Not(HasSubstr("[c10d]"))) << "a rank used the store after rank 0 had left";
  }
}

// Gloo itself would wait for the rank that never votes, for five minutes.
TEST(Votes, ThatNobodyReadsHoldNobodyUp) {
  const TemporaryFolder folder;
  const Meeting meeting(3);
  const Words command = story(folder.path() / "run", 0, {"unread=1", "timeout=300"});
  std::vector<std::unique_ptr<Subprocess>> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.push_back(std::make_unique<Subprocess>(command, meeting.of_rank(rank)));
  }
  for (const auto& rank : ranks) {
    const Ended ended = rank->wait(2min);
    EXPECT_EQ(ended.exit_code, 0) << "signal " << ended.signal << ": " << ended.err;
  }
}

}}  // namespace holdfast::test
