// Digests that come about while an image is filled: equal to those of the finished image, whatever the cuts.
#include "holdfast/snapshot/piece_digests.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include "holdfast/snapshot/copy_list.h"

namespace holdfast::test { namespace {

using internal::DigestKernel;

std::vector<std::byte> bytes_to_copy(std::size_t size, std::uint32_t seed = 7) {
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) {
    seed = seed * 1664525 + 1013904223;
    byte = static_cast<std::byte>(seed >> 24 & 0x3f);  // as any float type: finite
  }
  return bytes;
}

std::vector<DigestKernel> both_kernels() {
  std::vector<DigestKernel> all{internal::kPlainDigestKernel};
  if (internal::digest_kernel().copy != all[0].copy) all.push_back(internal::digest_kernel());
  return all;
}

Digest ended_digest(const DigestKernel& kernel, const internal::HashState& state) {
  Digest digest;
  unsigned char bytes[sizeof digest];
  kernel.end(state, bytes);
  std::memcpy(digest.bytes.data(), bytes, sizeof bytes);
  return digest;
}

TEST(DigestKernel, CopiesEveryByteAndNoOtherAndDigestsThem) {
  const auto from = bytes_to_copy(300'000);
  for (const DigestKernel& kernel : both_kernels()) {
    for (const std::size_t size : {0, 1, 63, 64, 65, 4095, 4096, 4097, 32767, 32768, 100'001, 262'144}) {
      for (const std::size_t shift : {0, 1, 16, 32, 64}) {
        alignas(64) static std::byte to[300'000];
        std::fill(std::begin(to), std::end(to), std::byte{0xee});
        internal::HashState state;
        kernel.begin(state);
        const std::size_t first = size / 3 / 4 * 4;
        EXPECT_TRUE(kernel.copy(state, to + shift, from.data(), first, {4, 0x7fffffff, 0x7f7fffff}));
        EXPECT_TRUE(kernel.copy(state, to + shift + first, from.data() + first, size - first, {}));
        EXPECT_EQ(ended_digest(kernel, state), digest_of(std::span(from).first(size)))
            << size << '+' << shift;
        EXPECT_EQ(std::memcmp(to + shift, from.data(), size), 0) << size << '+' << shift;
        const auto untouched = [](std::byte byte) { return byte == std::byte{0xee}; };
        EXPECT_TRUE(std::all_of(to, to + shift, untouched));
        EXPECT_TRUE(std::all_of(to + shift + size, std::end(to), untouched)) << size << '+' << shift;
      }
    }
  }
}

TEST(DigestKernel, LooksAtEveryNumberThatItCopies) {
  std::vector<float> numbers(9000, 1.5F);
  std::vector<float> to(numbers.size());
  const auto* const from = reinterpret_cast<const std::byte*>(numbers.data());
  for (const DigestKernel& kernel : both_kernels()) {
    for (std::size_t at = 0; at < numbers.size(); at += at < 3000 ? 1 : 97) {
      numbers[at] = -std::numeric_limits<float>::infinity();
      internal::HashState state;
      kernel.begin(state);
      const std::size_t bytes = (at < 3000 ? 3001 : numbers.size()) * sizeof(float);
      EXPECT_FALSE(kernel.copy(state, reinterpret_cast<std::byte*>(to.data()), from, bytes,
                               {4, 0x7fffffff, 0x7f7fffff}))
          << at;
      EXPECT_FALSE(kernel.add(state, from, bytes, {4, 0x7fffffff, 0x7f7fffff})) << at;
      numbers[at] = 1.5F;
    }
  }
}

// Tensors of several pieces, of one, empty, at odd places and out of order, with gaps.
class PieceDigestsTest : public testing::Test {
 protected:
  PieceDigestsTest() {
    const auto count = [](std::uint64_t bytes) { return static_cast<std::int64_t>(bytes / sizeof(float)); };
    const std::vector<TensorSpec> tensors = {{"large", DType::float32, {count(kLarge)}},
                                             {"small", DType::uint8, {1001}},
                                             {"empty", DType::float32, {0}},
                                             {"exact", DType::float64, {kDigestPiece / 8}},
                                             {"half", DType::bfloat16, {777}}};
    const std::vector<std::uint64_t> offsets = {40'960 + kDigestPiece, 4096, 0, 8192, 5097};
    snapshot.layout = std::make_shared<ImageLayout>(tensors, offsets, offsets[0] + kLarge + 3000);
    snapshot.arena = std::make_shared<Arena>(snapshot.layout->length());
    live = bytes_to_copy(snapshot.layout->length());
    digests = std::make_shared<PieceDigests>(snapshot);
  }
  std::span<std::byte> image() { return snapshot.arena->bytes(); }
  // What is known fits the image. Returns how many pieces are known.
  std::size_t check_known() {
    std::size_t known = 0;
    for (std::size_t i = 0; i < digests->pieces().size(); ++i) {
      const Inspected* const found = digests->find(i);
      if (found == nullptr) continue;
      ++known;
      const TensorPiece& piece = digests->pieces()[i];
      const auto bytes = image().subspan(piece.bytes.begin, piece.bytes.size());
      EXPECT_EQ(found->digest, digest_of(bytes)) << i;
      EXPECT_TRUE(found->finite) << i;
    }
    return known;
  }
  void add_all(CopyList& copies) {
    for (std::size_t i = 0; i < snapshot.layout->tensors().size(); ++i) {
      copies.add(snapshot.layout->slot(i, std::span<const std::byte>(live)),
                 snapshot.layout->slot(i, image()));
    }
  }
  bool all_copied() {
    for (std::size_t i = 0; i < snapshot.layout->tensors().size(); ++i) {
      const auto wanted = snapshot.layout->slot(i, std::span<const std::byte>(live));
      if (!std::equal(wanted.begin(), wanted.end(), snapshot.bytes(i).begin())) return false;
    }
    return true;
  }

  static constexpr std::uint64_t kLarge = 2 * kDigestPiece + 20'000;
  Snapshot snapshot;
  std::vector<std::byte> live;
  std::shared_ptr<PieceDigests> digests;
};

TEST_F(PieceDigestsTest, PiecesAreThoseOfTensorDigests) {
  CopyList copies;
  add_all(copies);
  copies.work(*digests);
  EXPECT_TRUE(all_copied());
  EXPECT_EQ(check_known(), 6u);
  EXPECT_EQ(digests->bytes(), copies.bytes());
  std::size_t at = 0;
  for (std::size_t i = 0; i < snapshot.layout->tensors().size(); ++i) {
    std::vector<Digest> own;
    for (; at < digests->pieces().size() && digests->pieces()[at].tensor == i; ++at) {
      own.push_back(digests->find(at)->digest);
    }
    EXPECT_EQ(combine_digests(own), tensor_digest(snapshot.bytes(i))) << i;
  }
}

TEST_F(PieceDigestsTest, ThreadsShareThemAndAHelperOnlyCopies) {
  CopyList copies;
  add_all(copies);
  std::thread first([&] { copies.work(*digests); });
  std::thread second([&] { copies.work(*digests); });
  copies.work();
  first.join();
  second.join();
  EXPECT_TRUE(all_copied());
  check_known();
}

TEST_F(PieceDigestsTest, WhoWaitsStopsThemAndTheCopyGoesOn) {
  CopyList copies;
  add_all(copies);
  digests->stop();
  copies.work(*digests);
  EXPECT_TRUE(all_copied());
  EXPECT_EQ(check_known(), 0u);
}

TEST_F(PieceDigestsTest, AStreamTakesAnyCutsAcrossTensorsAndGaps) {
  for (const std::size_t cut : {std::size_t{65'536}, std::size_t{1'000'000}, image().size()}) {
    digests = std::make_shared<PieceDigests>(snapshot);
    PieceDigester copying(*digests);
    for (std::size_t at = 0; at < image().size(); at += cut) {
      const std::size_t size = std::min(cut, image().size() - at);
      copying.copy(std::span(live).subspan(at, size), image().subspan(at, size));
    }
    EXPECT_TRUE(std::equal(live.begin(), live.end(), image().begin()));
    EXPECT_GE(check_known(), 5u);

    digests = std::make_shared<PieceDigests>(snapshot);
    PieceDigester passing(*digests);
    for (std::size_t at = 0; at < image().size(); at += cut) {
      passing.passed(image().subspan(at, std::min(cut, image().size() - at)));
    }
    EXPECT_GE(check_known(), 5u);
  }
}

TEST_F(PieceDigestsTest, APieceThatDoesNotPassWholeAndInOrderHasNone) {
  PieceDigester stream(*digests);
  const std::uint64_t large = snapshot.layout->offset(0);
  stream.passed(image().subspan(large + 4, kDigestPiece - 4));  // begins too late
  stream.passed(image().subspan(large + kDigestPiece, 4096));   // the second piece, with a gap
  stream.passed(image().subspan(large + kDigestPiece + 8192, kDigestPiece - 8192));
  EXPECT_EQ(check_known(), 0u);
  stream.passed(image().subspan(snapshot.layout->offset(4), 3));  // ends within an element
  stream.passed(image().subspan(snapshot.layout->offset(4) + 3, 2 * 777 - 3));
  EXPECT_EQ(check_known(), 0u);
  stream.passed(image().subspan(snapshot.layout->offset(4), 2 * 777));
  EXPECT_EQ(check_known(), 1u);
}

TEST_F(PieceDigestsTest, VerdictsAreOfTheirOwnPieceAndOfItsRole) {
  const std::uint64_t second = snapshot.layout->offset(0) + kDigestPiece;
  const float infinity = std::numeric_limits<float>::infinity();
  std::memcpy(&live[second + kDigestPiece - sizeof infinity], &infinity, sizeof infinity);
  CopyList copies;
  add_all(copies);
  copies.work(*digests);
  EXPECT_TRUE(digests->find(0)->finite);
  EXPECT_FALSE(digests->find(1)->finite);
  EXPECT_TRUE(digests->find(2)->finite);

  snapshot.trained = {false, true, true, true, true};
  PieceDigests buffers(snapshot);
  CopyList again;
  add_all(again);
  again.work(buffers);
  EXPECT_TRUE(buffers.find(1)->finite) << "an infinity is allowed there";
}

#if !defined(__SANITIZE_THREAD__)
// An update that nobody announced races with the copy. The copy may then be torn, which LateSave finds; its digest
// must fit the bytes that were written all the same, or the checkpoint would be rejected as damaged.
TEST_F(PieceDigestsTest, ADigestFitsTheCopyEvenIfTheTensorChangesMeanwhile) {
  std::atomic<bool> stop{false};
  std::thread training([&] {
    volatile std::byte* const memory = live.data();
    for (unsigned round = 0; !stop; ++round) {
      for (std::size_t i = round % 61; i < live.size(); i += 61)
        memory[i] = static_cast<std::byte>(round & 0x3f);
    }
  });
  for (int i = 0; i < 5; ++i) {
    digests = std::make_shared<PieceDigests>(snapshot);
    CopyList copies;
    add_all(copies);
    copies.work(*digests);
    EXPECT_EQ(check_known(), 6u);
  }
  stop = true;
  training.join();
}
#endif

}}  // namespace holdfast::test
