// 256 ranks on threads: they meet, live, vote, and name those that fall silent.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "holdfast/ranks/attendance.h"
#include "holdfast/ranks/pulse.h"
#include "holdfast/ranks/rank_names.h"
#include "holdfast/ranks/roll_call.h"
#include "holdfast/ranks/store_votes.h"
#include "support/memory_store.h"

namespace holdfast { namespace {

using namespace std::chrono_literals;
using testing::Each;
using testing::IsEmpty;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kRanks = 48;
#else
constexpr int kRanks = 256;
#endif
constexpr int kHost = 8;  // ranks of a host
constexpr int kVotes = 10;
constexpr Duration kLimit = 5min;

class ManyRanks : public testing::Test {
 protected:
  LaunchEnvironment place_of(int rank) const {
    LaunchEnvironment place;
    place.rank = rank;
    place.world_size = kRanks;
    place.master_address = "gpu1";
    place.master_port = 1;
    place.job = "job";
    return place;
  }
  void at_once(const std::vector<int>& ranks, const std::function<void(int)>& work) const {
    std::vector<std::jthread> threads;
    for (const int rank : ranks) threads.emplace_back([&work, rank] { work(rank); });
  }
  static std::vector<int> ranks_from(int first) {
    std::vector<int> ranks;
    for (int rank = first; rank < kRanks; ++rank) ranks.push_back(rank);
    return ranks;
  }

  const std::shared_ptr<test::MemoryStore> store = std::make_shared<test::MemoryStore>();
};

struct Rank {
  std::unique_ptr<StoreLine> line;
  std::shared_ptr<Pulse> pulse;
  std::unique_ptr<StoreVotes> votes;
};

TEST_F(ManyRanks, MeetVoteAndNameALostHost) {
  std::vector<Rank> ranks(kRanks);
  std::atomic<int> met{0};
  const auto all = ranks_from(0);
  at_once(all, [&](int rank) {
    Rank& own = ranks[static_cast<std::size_t>(rank)];
    own.line = std::make_unique<StoreLine>(store, "p/");
    met += attend(place_of(rank), Clock::real().now() + kLimit, kLimit, *own.line) ? 1 : 0;
    own.pulse = std::make_shared<Pulse>(store, "p/", rank, kRanks, pulse_options(kRanks, 10s));
    own.line->heed(own.pulse->alarm());
    own.votes = std::make_unique<StoreVotes>(store, store, "p/votes/", rank, kRanks, own.pulse->alarm());
  });
  EXPECT_EQ(met, kRanks);

  // A different rank asks for a save at each vote.
  std::vector<int> wrong(kRanks, 0);
  at_once(all, [&](int rank) {
    StoreVotes& votes = *ranks[static_cast<std::size_t>(rank)].votes;
    for (int i = 0; i < kVotes; ++i) {
      votes.post(ballot_of({.step = i, .save = rank == (7 * i + 3) % kRanks}, rank, kRanks));
      const auto result = votes.result(kLimit);
      const bool right = result && agreed_by(*result, kRanks).save == (7 * i + 3) % kRanks;
      wrong[static_cast<std::size_t>(rank)] += right ? 0 : 1;
    }
  });
  EXPECT_THAT(wrong, Each(0));
  for (const Rank& rank : ranks) EXPECT_THAT(rank.pulse->lost(), IsEmpty());

  // The last host falls silent. All others name its ranks, and nobody else.
  const int first_lost = kRanks - kHost;
  std::vector<int> living = all;
  living.resize(static_cast<std::size_t>(first_lost));
  at_once(ranks_from(first_lost), [&](int rank) { ranks[static_cast<std::size_t>(rank)].pulse->end(); });
  std::vector<std::string> named(living.size());
  at_once(living, [&](int rank) {
    const Rank& own = ranks[static_cast<std::size_t>(rank)];
    while (!own.pulse->alarm()->rank) std::this_thread::sleep_for(20ms);
    named[static_cast<std::size_t>(rank)] = RollCall(*own.line, own.pulse, rank, kRanks).who();
  });
  // On a busy machine one of them may give a last sign a little later, and be missing in the first verdict.
  EXPECT_THAT(named, Each(testing::HasSubstr(" died, hangs or cannot be reached")));
  for (const int rank : living) {
    const auto lost = ranks[static_cast<std::size_t>(rank)].pulse->lost();
    EXPECT_THAT(lost, testing::Not(IsEmpty())) << rank;
    EXPECT_THAT(lost, Each(testing::Ge(first_lost))) << rank;
  }
}

}}  // namespace holdfast
