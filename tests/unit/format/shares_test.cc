#include "holdfast/format/shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "holdfast/base/error.h"
#include "unit/format/checkpoint_maker.h"

namespace holdfast::test { namespace {

struct Drawn {
  std::vector<TensorSpec> tensors;
  std::vector<std::uint64_t> offsets;
  std::uint64_t length = 0;
  std::uint64_t head = 0;
  Ranks ranks;
  ImageLayout layout() const { return {tensors, offsets, length}; }
};

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}
  std::uint64_t below(std::uint64_t bound) { return random_() % bound; }
  bool chance(std::uint64_t in) { return below(in) == 0; }

 private:
  std::mt19937_64 random_;
};

// As libhdf5 lays files out: from 64 KiB on at blocks, smaller ones anywhere, sometimes with bytes between.
Drawn drawn_layout(std::uint64_t seed) {
  Draw draw(seed);
  Drawn made;
  std::uint64_t at = 8192 + draw.below(3000);
  const std::uint64_t small_one_in = 1 + draw.below(4);
  const bool tight = draw.chance(2);
  for (std::uint64_t i = 0, count = draw.below(30); i < count; ++i) {
    std::uint64_t bytes = 0;
    if (!draw.chance(9))
      bytes = draw.chance(small_one_in) ? 1 + draw.below(9000) : 60000 + draw.below(40 << 20);
    if (bytes >= kAlignedFrom) at = (at + 4095) / 4096 * 4096;
    made.tensors.push_back({"t/" + std::to_string(i), DType::uint8, {static_cast<std::int64_t>(bytes)}});
    made.offsets.push_back(bytes == 0 ? 0 : at);
    at += bytes;
    if (!tight) at += draw.below(3) * draw.below(6000);
  }
  made.length = at + draw.below(5000);
  made.head = std::min<std::uint64_t>(8192 + 4096 * draw.below(40), (made.length + 4095) / 4096 * 4096);
  // The order of the tensors is not the file's.
  for (std::size_t i = made.tensors.size(); i > 1; --i) {
    const std::size_t other = draw.below(i);
    std::swap(made.tensors[i - 1], made.tensors[other]);
    std::swap(made.offsets[i - 1], made.offsets[other]);
  }
  const std::uint64_t world = 1 + draw.below(7);
  const bool all_see = draw.chance(2);
  const bool owned = draw.chance(2);
  for (std::uint64_t r = 0; r < world; ++r) made.ranks.sees.push_back(r == 0 || all_see || draw.chance(2));
  for (std::size_t i = 0; i < made.tensors.size() && owned; ++i) {
    made.ranks.owners.push_back(draw.chance(3) ? static_cast<int>(draw.below(world)) : kAnyRank);
  }
  return made;
}

struct Written {
  ByteRange bytes;
  int rank;
  bool late;
};

std::vector<Written> all_written(const Shares& shares) {
  std::vector<Written> all;
  for (int r = 0; r < shares.world_size(); ++r) {
    for (const ByteRange& range : shares.ranks[static_cast<std::size_t>(r)].writes) {
      all.push_back({range, r, false});
    }
  }
  for (const ByteRange& range : shares.late) all.push_back({range, 0, true});
  std::sort(all.begin(), all.end(),
            [](const Written& a, const Written& b) { return a.bytes.begin < b.bytes.begin; });
  return all;
}

// Every byte behind the head once, no block twice, nothing by who does not see.
void check_blocks(const Drawn& drawn, const Shares& shares) {
  std::uint64_t covered = drawn.head;
  for (const Written& written : all_written(shares)) {
    ASSERT_EQ(written.bytes.begin, covered);
    ASSERT_GT(written.bytes.end, covered);
    ASSERT_EQ(written.bytes.end % 4096, 0u);
    ASSERT_TRUE(drawn.ranks.sees[static_cast<std::size_t>(written.rank)]);
    covered = written.bytes.end;
  }
  ASSERT_EQ(covered, std::max(drawn.head, (drawn.length + 4095) / 4096 * 4096));
}

// Whole pieces, each by one source: every byte of it is written by that rank, or sent to rank 0, which writes
// it late or with the head.
void check_pieces(const Drawn& drawn, const Shares& shares) {
  const std::vector<Written> written = all_written(shares);
  std::vector<std::vector<ByteRange>> sends;
  std::uint64_t bytes = 0;
  std::vector<int> hashed(shares.pieces.size());
  for (int r = 0; r < shares.world_size(); ++r) {
    const Share& share = shares.ranks[static_cast<std::size_t>(r)];
    std::uint64_t staged = 0;
    for (const std::size_t i : share.pieces) {
      ASSERT_EQ(shares.pieces[i].source, r);
      ++hashed[i];
      staged += shares.pieces[i].bytes.size();
    }
    ASSERT_EQ(staged, share.staged);
    std::uint64_t ranges = 0;
    for (const ByteRange& range : share.stages) ranges += range.size();
    ASSERT_EQ(ranges, staged);
    sends.push_back(share.sends);
  }
  for (std::size_t i = 0; i < shares.pieces.size(); ++i) {
    const SharedPiece& piece = shares.pieces[i];
    ASSERT_EQ(hashed[i], 1);
    bytes += piece.bytes.size();
    const int owner = drawn.ranks.owners.empty() ? kAnyRank : drawn.ranks.owners[piece.tensor];
    if (owner != kAnyRank) {
      ASSERT_EQ(piece.source, owner);
    }
    if (owner == kAnyRank) {
      ASSERT_TRUE(drawn.ranks.sees[static_cast<std::size_t>(piece.source)]);
    }
    ASSERT_LE(piece.bytes.size(), kDigestPiece);
    ASSERT_EQ((piece.bytes.begin - drawn.offsets[piece.tensor]) % kDigestPiece, 0u);
    const auto sent = [&](std::uint64_t begin, std::uint64_t end) {
      ASSERT_EQ(std::erase(sends[static_cast<std::size_t>(piece.source)], ByteRange{begin, end}), 1u)
          << "bytes that nobody sends";
    };
    if (piece.source != 0 && piece.bytes.begin < drawn.head) {
      sent(piece.bytes.begin, std::min(piece.bytes.end, drawn.head));
    }
    for (const Written& part : written) {
      const std::uint64_t begin = std::max(part.bytes.begin, piece.bytes.begin);
      const std::uint64_t end = std::min(part.bytes.end, piece.bytes.end);
      if (begin >= end) continue;
      if (!part.late) {
        ASSERT_EQ(part.rank, piece.source) << "bytes of one rank written by another";
      }
      if (part.late && piece.source != 0) sent(begin, end);
    }
  }
  for (const auto& left : sends) ASSERT_TRUE(left.empty()) << "something is sent that nobody waits for";
  std::uint64_t state = 0;
  for (const TensorSpec& tensor : drawn.tensors) state += tensor.bytes();
  ASSERT_EQ(bytes, state);
}

void check_balance(const Drawn& drawn, const Shares& shares) {
  if (!drawn.ranks.owners.empty()) return;
  std::uint64_t state = 0;
  std::uint64_t in_head = 0;
  for (const SharedPiece& piece : shares.pieces) {
    state += piece.bytes.size();
    if (piece.bytes.begin < drawn.head) in_head += piece.bytes.size();
  }
  const auto seeing =
      static_cast<std::uint64_t>(std::count(drawn.ranks.sees.begin(), drawn.ranks.sees.end(), true));
  const std::uint64_t most = std::max(state / seeing + 1, in_head) + kDigestPiece;
  for (const Share& share : shares.ranks) {
    ASSERT_LE(share.staged, most);
    if (seeing == 2 && state >= 320u << 20) {
      ASSERT_LE(share.staged, state / 100 * 55);
    }
  }
}

TEST(Shares, CoverEveryByteOnceWhateverTheLayout) {
  int divided = 0;
  int with_late = 0;
  int with_sent = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Drawn drawn = drawn_layout(seed);
    Shares shares;
    try {
      shares = divide(drawn.layout(), drawn.head, drawn.ranks);
    } catch (const RefusedError&) {
      // Only where somebody who sees nothing owns much.
      ASSERT_FALSE(drawn.ranks.owners.empty());
      ASSERT_EQ(std::count(drawn.ranks.sees.begin(), drawn.ranks.sees.end(), false) != 0, true);
      continue;
    }
    ++divided;
    check_blocks(drawn, shares);
    check_pieces(drawn, shares);
    check_balance(drawn, shares);
    if (HasFatalFailure()) return;
    if (!shares.late.empty()) ++with_late;
    for (const Share& share : shares.ranks) with_sent += share.sent != 0 ? 1 : 0;
    // Another rank's own computation.
    const Shares other = divide(drawn.layout(), drawn.head, drawn.ranks);
    ASSERT_EQ(other.fingerprint, shares.fingerprint);
    ASSERT_EQ(other.late, shares.late);
    for (std::size_t r = 0; r < shares.ranks.size(); ++r) {
      ASSERT_EQ(other.ranks[r].writes, shares.ranks[r].writes);
      ASSERT_EQ(other.ranks[r].pieces, shares.ranks[r].pieces);
      ASSERT_EQ(other.ranks[r].sends, shares.ranks[r].sends);
    }
  }
  EXPECT_GT(divided, 1600);
  EXPECT_GT(with_late, 300);
  EXPECT_GT(with_sent, 400);
}

// A network with its optimizer's slots, and a random stream of each rank.
std::vector<TensorSpec> network(int ranks) {
  std::vector<TensorSpec> tensors;
  for (const std::string group : {"model", "optimizer/momentum_buffer"}) {
    for (int layer = 0; layer < 30; ++layer) {
      const std::string name = group + "/layer" + std::to_string(layer);
      tensors.push_back({name + ".conv.weight", DType::float32, {512, 256, 3, 3}});
      tensors.push_back({name + ".bn.weight", DType::float32, {512}});
      tensors.push_back({name + ".bn.bias", DType::float32, {512}});
    }
  }
  for (int r = 0; r < ranks; ++r) {
    tensors.push_back({"rank/" + std::to_string(r) + "/rng/cpu", DType::uint8, {5056}});
  }
  return tensors;
}

TEST(Shares, OfANetworkAreEvenAndInLongRuns) {
  for (const std::size_t world : {2u, 4u}) {
    const auto plan = make_file_plan(network(static_cast<int>(world)));
    const auto owners = owners_by_name(plan->layout->tensors());
    const Shares shares = divide(*plan, {std::vector<bool>(world, true), owners});
    std::uint64_t state = 0;
    for (const TensorSpec& tensor : plan->layout->tensors()) state += tensor.bytes();
    for (std::size_t r = 0; r < world; ++r) {
      const Share& share = shares.ranks[r];
      EXPECT_LE(share.staged, state * 11 / (10 * world));
      EXPECT_GE(share.staged, state * 9 / (10 * world));
      EXPECT_LE(share.writes.size(), 3u);
      // The stream, and at most two blocks that it has in common with neighbours.
      if (r != 0) {
        EXPECT_LE(share.sent, 5056u + 2 * 4096);
      }
    }
    EXPECT_EQ(divide(*plan, {std::vector<bool>(world, true), owners}).fingerprint, shares.fingerprint);
  }
}

TEST(Shares, OfAWorldOfOneAreEverything) {
  const auto plan = make_file_plan(network(1));
  const Shares shares = divide(*plan, {{true}, {}});
  EXPECT_TRUE(shares.late.empty());
  ASSERT_EQ(shares.ranks[0].writes.size(), 1u);
  EXPECT_EQ(shares.ranks[0].writes[0].begin, plan->head);
  EXPECT_TRUE(shares.ranks[0].sends.empty());
}

TEST(Shares, WhoSeesNothingSendsItsOwnAlone) {
  const auto plan = make_file_plan(network(3));
  const Shares shares = divide(*plan, {{true, true, false}, owners_by_name(plan->layout->tensors())});
  EXPECT_TRUE(shares.ranks[2].writes.empty());
  EXPECT_EQ(shares.ranks[2].staged, 5056u);
  EXPECT_EQ(shares.ranks[2].sent, 5056u);
}

TEST(Shares, FollowWhoOwnsWhatAndTheFingerprintTellsThem) {
  const auto plan = make_file_plan(network(2));
  const std::size_t tensors = plan->layout->tensors().size();
  std::vector<int> owners(tensors, kAnyRank);
  owners[0] = 1;  // a large one
  const Shares shares = divide(*plan, {{true, true}, owners});
  EXPECT_EQ(shares.pieces[0].source, 1);
  // Written where it lies, but for the block that its end shares.
  EXPECT_LT(shares.ranks[1].sent, 2 * 4096u);
  const Digest fingerprint = shares.fingerprint;
  EXPECT_NE(divide(*plan, {{true, true}, {}}).fingerprint, fingerprint);
  EXPECT_NE(divide(*plan, {{true, true, true}, owners}).fingerprint, fingerprint);
  EXPECT_NE(divide(*plan, {{true, false}, std::vector<int>(tensors, kAnyRank)}).fingerprint,
            divide(*plan, {{true, true}, std::vector<int>(tensors, kAnyRank)}).fingerprint);
  auto other = std::make_shared<FilePlan>(*plan);
  other->stretches.back().digest.bytes[0] ^= std::byte{1};  // another libhdf5's
  EXPECT_NE(divide(*other, {{true, true}, owners}).fingerprint, fingerprint);
}

TEST(Shares, NeedARankZeroThatSeesAndOwnersThatExist) {
  const auto plan = make_file_plan(network(2));
  EXPECT_THROW(divide(*plan, {{}, {}}), UsageError);
  EXPECT_THROW(divide(*plan, {{false, true}, {}}), UsageError);
  std::vector<int> owners(plan->layout->tensors().size(), kAnyRank);
  owners[1] = 2;
  EXPECT_THROW(divide(*plan, {{true, true}, owners}), UsageError);
  EXPECT_THROW(divide(*plan, {{true, true}, {0}}), Error);
}

TEST(Shares, NobodySendsAWholeOptimizer) {
  const auto plan = make_file_plan(network(2));
  const std::vector<int> owners(plan->layout->tensors().size(), 1);
  EXPECT_NO_THROW(divide(*plan, {{true, true}, owners}));
  try {
    divide(*plan, {{true, false}, owners});
    FAIL() << "nothing was refused";
  } catch (const RefusedError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("rank 1"));
  }
}

TEST(Shares, OwnersByName) {
  const std::vector<TensorSpec> tensors{{"rank/3/rng/cpu", DType::uint8, {1}},
                                        {"rank/12/x", DType::uint8, {1}},
                                        {"model/rank/1/x", DType::uint8, {1}},
                                        {"rank/x/y", DType::uint8, {1}},
                                        {"rank/1", DType::uint8, {1}},
                                        {"rank/-1/y", DType::uint8, {1}},
                                        {"rank/99999999999/y", DType::uint8, {1}}};
  EXPECT_EQ(owners_by_name(tensors), (std::vector<int>{3, 12, -1, -1, -1, -1, -1}));
}

}}  // namespace holdfast::test
