// Votes that the run's store counts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "holdfast/ranks/ballot_box.h"
#include "holdfast/ranks/store_server.h"
#include "holdfast/ranks/vote_line.h"

namespace holdfast { namespace {

using namespace std::chrono_literals;

Ballot ballot(std::int64_t first, std::int64_t last) {
  Ballot made{};
  made.front() = first;
  made.back() = last;
  return made;
}

TEST(BallotBox, TheLargestOfEachNumberWhenAllHaveCast) {
  BallotBox box(2);
  EXPECT_FALSE(box.join(7));
  EXPECT_TRUE(box.join(8));
  EXPECT_THROW(box.join(9), std::runtime_error) << "more than there are";
  EXPECT_THROW(box.cast(9, {}), std::runtime_error);
  for (const std::int64_t round : {0, 100}) {
    EXPECT_EQ(box.cast(8, ballot(round + 1, round - 5)), std::nullopt);
    EXPECT_THROW(box.cast(8, {}), std::runtime_error) << "twice";
    EXPECT_EQ(box.cast(7, ballot(round - 3, round - 4)), ballot(round + 1, round - 4));
  }
  EXPECT_FALSE(box.lose(9));
  EXPECT_FALSE(box.broken());
  EXPECT_TRUE(box.lose(7));
  EXPECT_TRUE(box.broken());
}

class VotesOverStore : public testing::Test {
 protected:
  VotesOverStore() {
    auto listening = listen_at("127.0.0.1", 0);
    place_ = {"127.0.0.1", own_end(listening->get()).second, "our secret"};
    server_ = std::make_unique<StoreServer>(std::move(*listening), place_.secret);
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      votes_.push_back(
          std::make_unique<VoteLine>(std::make_shared<StoreConnection>(place_, 60s), "vote", int{kRanks}));
    }
    std::vector<std::jthread> joining;
    for (const auto& vote : votes_) joining.emplace_back([&vote] { vote->join(60s); });
  }
  static constexpr std::size_t kRanks = 3;
  StoreConnection::Place place_;
  std::unique_ptr<StoreServer> server_;
  std::vector<std::unique_ptr<VoteLine>> votes_;
};

TEST_F(VotesOverStore, AllGetTheLargest) {
  for (std::int64_t round = 0; round < 20; ++round) {
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      if (rank + 1 == kRanks) {
        EXPECT_EQ(votes_[0]->result(20ms), std::nullopt) << "one has not voted";
        EXPECT_THROW(votes_[0]->post({}), UsageError) << "while one is pending";
      }
      votes_[rank]->post(ballot(round, static_cast<std::int64_t>(rank)));
    }
    for (const auto& vote : votes_) EXPECT_EQ(vote->result(60s), ballot(round, kRanks - 1));
  }
  EXPECT_THROW(votes_[0]->result(1s), UsageError);
}

TEST_F(VotesOverStore, FailWhenTheConnectionOfARankEnds) {
  votes_[0]->post({});
  votes_[2].reset();
  EXPECT_THROW(votes_[0]->result(60s), StoreFailed);
  votes_[1]->post({});
  EXPECT_THROW(votes_[1]->result(60s), StoreFailed) << "also one that votes later";
  EXPECT_THROW(votes_[1]->result(60s), StoreFailed) << "of all votes";
}

TEST_F(VotesOverStore, NobodyJoinsAVoteThatHasAll) {
  VoteLine more(std::make_shared<StoreConnection>(place_, 60s), "vote", int{kRanks});
  EXPECT_THROW(more.join(60s), StoreClosed);
  VoteLine other(std::make_shared<StoreConnection>(place_, 60s), "other", 2);
  EXPECT_THROW(other.join(20ms), StoreClosed) << "alone";
}

}}  // namespace holdfast
