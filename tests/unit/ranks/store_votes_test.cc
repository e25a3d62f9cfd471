// Votes that the ranks count in the run's store.
#include "holdfast/ranks/store_votes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "support/memory_store.h"

namespace holdfast { namespace {

using namespace std::chrono_literals;

Ballot ballot(std::int64_t first, std::int64_t last) {
  Ballot made{};
  made.front() = first;
  made.back() = last;
  return made;
}

class Votes : public testing::Test {
 protected:
  static constexpr std::size_t kRanks = 3;

  Votes() {
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      votes_.push_back(
          std::make_unique<StoreVotes>(store_, store_, "v/", static_cast<int>(rank), int{kRanks}, alarm_));
    }
  }
  const std::shared_ptr<test::MemoryStore> store_ = std::make_shared<test::MemoryStore>();
  const std::shared_ptr<Alarm> alarm_ = std::make_shared<Alarm>();
  std::vector<std::unique_ptr<StoreVotes>> votes_;
};

TEST_F(Votes, TellWhereTheyStand) {
  const auto account = votes_[0]->account();
  EXPECT_EQ(account(), "votes: none yet\n");
  for (const std::int64_t step : {7, 9}) {
    for (int rank = 0; rank < 3; ++rank) {
      votes_[static_cast<std::size_t>(rank)]->post(ballot_of({.step = step}, rank, 3));
      if (rank == 0 && step == 9) {
        EXPECT_EQ(account(), "votes: this rank's newest is number 1, at step 9, and it has no result yet\n");
      }
    }
    for (const auto& vote : votes_) EXPECT_TRUE(vote->result(60s));
  }
  votes_[0].reset();
  EXPECT_EQ(account(), "votes: this rank's newest is number 1, at step 9, and it has its result\n");
}

TEST_F(Votes, AllGetTheLargest) {
  for (std::int64_t round = 0; round < 20; ++round) {
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      if (rank + 1 == kRanks) {
        EXPECT_EQ(votes_[0]->result(20ms), std::nullopt) << "one has not voted";
        EXPECT_THROW(votes_[0]->post({}), UsageError) << "while one is pending";
      }
      votes_[rank]->post(ballot(-round, static_cast<std::int64_t>(rank)));
    }
    for (const auto& vote : votes_) EXPECT_EQ(vote->result(60s), ballot(-round, kRanks - 1));
  }
  EXPECT_THROW(votes_[0]->result(1s), UsageError);
  EXPECT_LE(store_->size(), 6U) << "of the last two rounds";
}

TEST_F(Votes, FailWhenARankEndsThem) {
  votes_[0]->post({});
  votes_[2].reset();
  EXPECT_THROW(votes_[0]->result(60s), StoreFailed);
  votes_[1]->post({});
  EXPECT_THROW(votes_[1]->result(60s), StoreFailed) << "also one that votes later";
  EXPECT_THROW(votes_[1]->result(60s), StoreFailed) << "of all votes";
}

TEST_F(Votes, ThatHaveAResultKeepItWhenARankEndsThem) {
  for (const auto& vote : votes_) vote->post({});
  EXPECT_EQ(votes_[0]->result(60s), Ballot{});
  votes_[1]->end();  // it has not read it
  EXPECT_EQ(votes_[2]->result(60s), Ballot{});
}

TEST_F(Votes, FailWhenARankIsLostOrTheStore) {
  votes_[0]->post({});
  alarm_->rank = true;
  EXPECT_THROW(votes_[0]->result(60s), StoreClosed);
  alarm_->rank = false;
  store_->close(true);
  votes_[1]->post({});
  EXPECT_THROW(votes_[1]->result(60s), StoreClosed);
}

}}  // namespace holdfast
