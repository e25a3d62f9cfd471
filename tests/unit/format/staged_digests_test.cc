// Files of images that were digested while they were staged: the same bytes, and what happens to them between
// staging and writing shows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <optional>

#include "holdfast/base/error.h"
#include "holdfast/format/layout.h"
#include "holdfast/format/share_writer.h"
#include "holdfast/snapshot/piece_digests.h"
#include "support/tensor_digests.h"
#include "unit/format/checkpoint_maker.h"

namespace holdfast::test { namespace {

using testing::HasSubstr;

// Of two pieces and of one, small ones, an empty one.
std::vector<TensorSpec> tensors() {
  return {{"model/large", DType::float32, {(9 << 20) / 4}},
          {"model/empty", DType::float32, {0}},
          {"model/small", DType::float32, {100}},
          {"optimizer/slot", DType::float32, {1 << 16}},
          {"rng/cpu", DType::uint8, {33}}};
}

// Filled from bytes elsewhere, as a late copy does; `early`: so many tensors at the end without digests.
Made staged(bool digesting, std::size_t early = 1) {
  const Made other = make_snapshot(tensors(), small_attributes());
  Made made = make_snapshot(tensors(), small_attributes());
  const auto digests = std::make_shared<PieceDigests>(*made.snapshot);
  PieceDigester stream(*digests);
  const std::size_t count = tensors().size();
  for (std::size_t i = 0; i + early < count; ++i) {
    stream.copy(other.snapshot->bytes(i), made.plan->layout->slot(i, made.snapshot->arena->bytes()));
  }
  if (digesting) made.snapshot->digests = digests;
  return made;
}

std::span<std::byte> slot(const Made& made, std::size_t tensor) {
  return made.plan->layout->slot(tensor, made.snapshot->arena->bytes());
}

TEST(StagedDigests, TheFileIsTheSameByteForByte) {
  MemoryFileSystem disk;
  const auto plain = write(disk, "/plain", staged(false));
  const auto all = write(disk, "/all", staged(true, 0));
  const auto some = write(disk, "/some", staged(true, 3));
  EXPECT_EQ(all, plain);
  EXPECT_EQ(some, plain);
  EXPECT_EQ(plain, tensor_digests(*staged(false).snapshot));
  EXPECT_EQ(judge(disk.get("/plain")), "good");
  EXPECT_TRUE(disk.get("/all") == disk.get("/plain"));
  EXPECT_TRUE(disk.get("/some") == disk.get("/plain"));
}

// Of a bit that flips in the image after staging.
Made flipped(std::size_t tensor, std::size_t byte) {
  Made made = staged(true);
  slot(made, tensor)[byte] ^= std::byte{8};
  return made;
}

// What becomes of it in the save with that number: the writer's refusal, or what a reader says of the file.
std::string saved(const Made& made, std::uint64_t round = 0) {
  MemoryFileSystem disk;
  const auto file = disk.open_file("/a", OpenMode::create_direct);
  try {
    write_image(*file, *made.snapshot, *made.plan, {.recheck = {.round = round}});
  } catch (const Error& error) {
    EXPECT_NE(judge(disk.get("/a")), "good") << "a save that failed must leave no valid head";
    return error.what();
  }
  return judge(disk.get("/a"));
}

TEST(StagedDigests, AFlipBetweenStagingAndWritingShowsInEveryFile) {
  const std::string second = saved(flipped(0, kDigestPiece + 5));
  EXPECT_THAT(second, HasSubstr("tensor model/large"));
  EXPECT_THAT(second, HasSubstr("digest differs"));
  EXPECT_THAT(saved(flipped(3, 17)), HasSubstr("tensor optimizer/slot"));
  EXPECT_EQ(saved(flipped(4, 1)), "good")
      << "copied early: digested by the writer, which sees the flipped bit";
}

TEST(StagedDigests, ASaveInSeventeenFindsItBeforeTheAcknowledgement) {
  // Pieces 0 and 1 are the large tensor's, 3 is the slot's.
  for (const std::size_t piece : {1, 3}) {
    const Made made = piece == 3 ? flipped(3, 0) : flipped(0, piece * kDigestPiece);
    int refused = 0;
    for (std::uint64_t round = 100; round < 100 + kRecheckEvery; ++round) {
      const std::string said = saved(made, round);
      if (said.find("changed in memory after it was staged") == std::string::npos) continue;
      ++refused;
      EXPECT_THAT(said, HasSubstr(piece == 3 ? "'optimizer/slot'" : "'model/large'"));
      EXPECT_EQ(round % kRecheckEvery, piece);
    }
    EXPECT_EQ(refused, 1) << "of any " << kRecheckEvery << " saves in a row, one looks at piece " << piece;
  }
}

TEST(StagedDigests, VerdictsOfTheStagingReachTheSeal) {
  for (const bool finite : {true, false}) {
    Made made = make_snapshot(tensors(), small_attributes());
    std::vector<float> ones(std::size_t{9 << 20} / 4, 1.0F);
    if (!finite) ones.back() = std::numeric_limits<float>::quiet_NaN();
    for (const std::size_t i : {2, 3}) std::memset(slot(made, i).data(), 0, slot(made, i).size());
    const auto digests = std::make_shared<PieceDigests>(*made.snapshot);
    PieceDigester stream(*digests);
    stream.copy(std::as_bytes(std::span(ones)), slot(made, 0));
    made.snapshot->digests = digests;
    std::optional<std::size_t> told = 77;
    MemoryFileSystem disk;
    const auto file = disk.open_file("/a", OpenMode::create_direct);
    write_image(*file, *made.snapshot, *made.plan,
                {.before_seal = [&](Snapshot&, std::optional<std::size_t> found) { told = found; }});
    EXPECT_EQ(told, finite ? std::nullopt : std::optional<std::size_t>(0));
    EXPECT_EQ(judge(disk.get("/a")), "good");
  }
}

TEST(StagedDigests, AShareOfARankTakesThemToo) {
  const Made made = staged(true);
  const Shares shares = divide(*made.plan, {.sees = {true, true}, .owners = {}});
  for (const int rank : {0, 1}) {
    const WrittenShare hashed = hash_share(*made.snapshot, shares, rank, {}, true);
    const Made plain = staged(false);
    EXPECT_EQ(hashed.digests, hash_share(*plain.snapshot, shares, rank, {}, true).digests);
  }
  slot(made, 0)[0] ^= std::byte{1};
  int refused = 0;
  for (const int rank : {0, 1}) {
    try {
      hash_share(*made.snapshot, shares, rank, {.recheck = {.round = kRecheckEvery}}, true);
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("'model/large' changed in memory"));
      ++refused;
    }
  }
  EXPECT_EQ(refused, 1);
}

}}  // namespace holdfast::test
