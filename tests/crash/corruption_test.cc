// Whatever happens to the bytes in a run directory is seen and named, and costs at most the checkpoints that
// it happened to. Here: the bytes of the newest file, everywhere. Beside it, in corruption/: whole files and
// other formats, the small files, bytes that change under the reader, and the programs on a real disk.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "corruption/lane.h"
#include "holdfast/base/log.h"
#include "holdfast/format/layout.h"

namespace holdfast::test::corruption { namespace {

// Under a sanitizer a seventh of the places.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t kStride = 7;
#else
constexpr std::size_t kStride = 1;
#endif

constexpr std::size_t kSector = 512;
constexpr std::size_t kBlock = 4096;

const Known& newest() { return history().newest(); }
const Known& previous() { return history().files()[1]; }
std::string path_of(const Known& file) { return std::string(kRun) + "/" + file.name; }

// The newest file holds these bytes: they are a case unless they are its own.
void judge(const std::string& what, std::span<const std::byte> bytes, bool whole = false) {
  const std::vector<std::byte>& own = newest().bytes;
  if (bytes.size() == own.size() && std::memcmp(bytes.data(), own.data(), own.size()) == 0) return;
  // Header and index decide what the rest is held against.
  const std::uint64_t sealed = newest().index.user_block;
  const bool stale =
      bytes.size() == own.size() && std::memcmp(bytes.data(), previous().bytes.data(), sealed) == 0;
  MemoryFileSystem disk = history().disk();
  disk.put(path_of(newest()), bytes);
  lane().goes_on(what, disk,
                 {.step = previous().step,
                  .named = {{.file = newest().name, .texts = reasons(stale ? previous() : newest(), bytes)}},
                  .whole = whole,
                  .stale = stale});
}

// The newest file with [begin, begin + length) taken from elsewhere; zeros without a source.
void judge_replaced(const std::string& what, std::size_t begin, std::size_t length,
                    std::span<const std::byte> source) {
  std::vector<std::byte> bytes = newest().bytes;
  const std::size_t end = std::min(begin + length, bytes.size());
  for (std::size_t i = begin; i < end; ++i) bytes[i] = source.empty() ? std::byte{0} : source[i];
  judge(what + " at " + std::to_string(begin), bytes);
}

TEST(Corruption, TheHistoryIsWhole) {
  ASSERT_EQ(history().files().size(), 4U);
  for (const Known& file : history().files()) EXPECT_EQ(file.bytes.size(), newest().bytes.size());
  EXPECT_EQ(newest().name, "step-000000000008-a0002.h5");
  EXPECT_EQ(previous().name, "step-000000000006-a0002.h5");
  Volume volume;
  volume.disk = history().disk();
  Attempt attempt(volume.options());
  EXPECT_EQ(attempt.resumed.step, 8);
  EXPECT_TRUE(attempt.resumed.skipped.empty());
  EXPECT_EQ(attempt.state(), newest().state);
  attempt.train_to(kSteps);
  EXPECT_EQ(attempt.state(), history().straight());
}

TEST(Corruption, AFlippedBitInEveryStretchOf64Bytes) {
  std::vector<std::byte> bytes = newest().bytes;
  std::size_t bits[8] = {};
  for (std::size_t stretch = 0; stretch < bytes.size() / 64; stretch += kStride) {
    const std::size_t at = stretch * 64 + stretch * 29 % 64;
    const std::size_t bit = (stretch + stretch / 8) % 8;
    const std::byte mask{static_cast<unsigned char>(1U << bit)};
    bytes[at] ^= mask;
    judge("bit " + std::to_string(bit) + " of byte " + std::to_string(at), bytes);
    bytes[at] ^= mask;
    ++bits[bit];
  }
  for (const std::size_t count : bits) EXPECT_GE(count, bytes.size() / 64 / kStride / 9);
}

TEST(Corruption, EveryBitOfTheFirst64Bytes) {
  std::vector<std::byte> bytes = newest().bytes;
  for (std::size_t bit = 0; bit < 64 * 8; bit += kStride) {
    const std::byte mask{static_cast<unsigned char>(1U << bit % 8)};
    bytes[bit / 8] ^= mask;
    judge("header bit " + std::to_string(bit), bytes, bit / 8 == kFormatVersionAt);
    bytes[bit / 8] ^= mask;
  }
}

TEST(Corruption, EveryZeroedBlockAndSector) {
  for (std::size_t at = 0; at < newest().bytes.size(); at += kBlock)
    judge_replaced("a zeroed block", at, kBlock, {});
  for (std::size_t at = 0; at < newest().bytes.size(); at += kSector * kStride)
    judge_replaced("a zeroed sector", at, kSector, {});
}

TEST(Corruption, EveryStaleBlockAndSector) {
  for (std::size_t at = 0; at < newest().bytes.size(); at += kBlock)
    judge_replaced("a stale block", at, kBlock, previous().bytes);
  for (std::size_t at = 0; at < newest().bytes.size(); at += kSector * kStride)
    judge_replaced("a stale sector", at, kSector, previous().bytes);
}

// A write that was lost from there on, or up to there.
TEST(Corruption, HalfOfTheWritesWereLost) {
  const std::size_t size = newest().bytes.size();
  for (std::size_t at = kBlock; at < size; at += 16 * kBlock) {
    judge_replaced("nothing was written from there on: the end is stale", at, size, previous().bytes);
    judge_replaced("the end is zeros", at, size, {});
    std::vector<std::byte> bytes = newest().bytes;
    std::copy_n(previous().bytes.begin(), at, bytes.begin());
    judge("the start is stale up to " + std::to_string(at), bytes);
  }
  std::vector<std::byte> bytes = newest().bytes;
  std::copy_n(previous().bytes.begin(), newest().index.user_block, bytes.begin());
  judge("header and index are stale", bytes, true);
}

TEST(Corruption, EveryTruncationIsDetected) {
  for (std::size_t length = 0; length < newest().bytes.size(); length += kSector * kStride)
    judge("cut to " + std::to_string(length), std::span(newest().bytes).first(length));
  judge("one byte is missing", std::span(newest().bytes).first(newest().bytes.size() - 1), true);
}

TEST(Corruption, AppendedBytesAreDetected) {
  for (const std::size_t more : {1, 511, 512, 4096, 1 << 20}) {
    std::vector<std::byte> bytes = newest().bytes;
    bytes.resize(bytes.size() + more);
    judge(std::to_string(more) + " zeros more", bytes, true);
    std::fill(bytes.end() - static_cast<std::ptrdiff_t>(more), bytes.end(), std::byte{0x5a});
    judge(std::to_string(more) + " bytes more", bytes, true);
  }
}

TEST(Corruption, TwoTensorsSwapped) {
  const auto& tensors = newest().index.tensors;
  std::size_t pairs = 0;
  for (std::size_t a = 0; a < tensors.size(); ++a) {
    for (std::size_t b = a + 1; b < tensors.size(); ++b) {
      const std::uint64_t length = tensors[a].spec.bytes();
      if (length != tensors[b].spec.bytes()) continue;
      std::vector<std::byte> bytes = newest().bytes;
      const auto begin = bytes.begin();
      std::swap_ranges(begin + static_cast<std::ptrdiff_t>(tensors[a].offset),
                       begin + static_cast<std::ptrdiff_t>(tensors[a].offset + length),
                       begin + static_cast<std::ptrdiff_t>(tensors[b].offset));
      judge(tensors[a].spec.name + " and " + tensors[b].spec.name + " swapped", bytes, true);
      ++pairs;
    }
  }
  EXPECT_GE(pairs, 2U);  // weight and momentum, the two counters
}

// The last word of the program.
class Summary : public testing::Environment {
 public:
  void SetUp() override {
    set_log_level(LogLevel::off);
    mallopt(M_MMAP_THRESHOLD, 256 << 20);  // ten thousands of files of a megabyte: no new pages for each
    mallopt(M_TRIM_THRESHOLD, 256 << 20);
  }
  void TearDown() override {
    EXPECT_TRUE(lane().clean());
    std::printf("%s\n", lane().summary().c_str());
  }
};

const testing::Environment* const kSummary = testing::AddGlobalTestEnvironment(new Summary);

}}  // namespace holdfast::test::corruption
