// Whatever happens to the bytes of a checkpoint is seen, and named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "holdfast/format/internal/header.h"
#include "holdfast/format/internal/little_endian.h"
#include "unit/format/checkpoint_maker.h"

namespace holdfast::test { namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST(Damage, TheFileIsGoodAtFirst) {
  EXPECT_EQ(judge(small_file()), "good");
  EXPECT_EQ(judge(small_file(), ReadMode::uncached), "good");
}

TEST(Damage, EveryFlippedBitIsSeen) {
  std::vector<std::byte> file = small_file();
  std::size_t tried = 0;
  for (std::size_t stretch = 0; stretch < file.size(); stretch += 64) {
    for (const std::size_t at : {stretch, stretch + 41}) {
      if (at >= file.size()) continue;
      const std::byte bit{static_cast<unsigned char>(1u << (stretch / 64 % 8))};
      file[at] ^= bit;
      ASSERT_NE(judge(file), "good") << "byte " << at;
      ASSERT_THAT(judge(file), testing::Not(HasSubstr("newer"))) << "byte " << at;
      file[at] ^= bit;
      ++tried;
    }
  }
  EXPECT_GE(tried, 2 * file.size() / 64 - 1);
}

TEST(Damage, EveryTruncationAndEveryAppendedByteIsSeen) {
  std::vector<std::byte> file = small_file();
  for (std::size_t length = 0; length < file.size(); length += 512) {
    ASSERT_THAT(judge(std::span(file).first(length)), HasSubstr("fewer")) << length;
  }
  ASSERT_THAT(judge(std::span(file).first(file.size() - 1)), HasSubstr("1 fewer than were sealed"));
  for (const std::size_t more : {1, 511, 4096, 100000}) {
    std::vector<std::byte> longer = file;
    longer.resize(file.size() + more);
    ASSERT_THAT(judge(longer), HasSubstr(std::to_string(more) + " more")) << more;
  }
}

TEST(Damage, EveryZeroedBlockIsSeen) {
  const std::vector<std::byte> file = small_file();
  for (std::size_t block = 0; block < file.size(); block += 4096) {
    std::vector<std::byte> torn = file;
    const auto end = std::min(file.size(), block + 4096);
    std::fill(torn.begin() + static_cast<std::ptrdiff_t>(block),
              torn.begin() + static_cast<std::ptrdiff_t>(end), std::byte{0});
    if (torn == file) continue;
    ASSERT_NE(judge(torn), "good") << "block at " << block;
  }
}

TEST(Damage, TheErrorNamesTheDamagedPart) {
  const Made made = make_snapshot(small_tensors(), small_attributes());
  MemoryFileSystem disk;
  write(disk, "/a", made);
  const std::vector<std::byte> file = disk.get("/a");
  const auto at = [&](std::uint64_t byte) {
    std::vector<std::byte> other = file;
    other[byte] ^= std::byte{16};
    return judge(other);
  };
  const std::uint64_t tensor = made.plan->layout->offset(*made.plan->layout->find("rng/cpu"));
  EXPECT_EQ(at(tensor + 3), "tensor rng/cpu (bytes " + std::to_string(tensor) + ".." +
                                std::to_string(tensor + 33) + "): digest differs");
  EXPECT_THAT(at(0), HasSubstr("no magic number"));
  EXPECT_EQ(at(kFormatVersionAt), "header: digest differs");
  EXPECT_EQ(at(kLowestReaderAt), "header: digest differs");
  EXPECT_EQ(at(4095), "header: digest differs");
  EXPECT_EQ(at(4096), "index: digest differs");
  EXPECT_EQ(at(made.plan->user_block - 1), "index: digest differs");
  EXPECT_THAT(at(made.plan->step_offset), StartsWith("HDF5 metadata (bytes "));
  EXPECT_THAT(at(made.plan->json_offset), StartsWith("HDF5 metadata (bytes "));
  EXPECT_THAT(judge(std::vector<std::byte>(100000)), HasSubstr("not a Holdfast checkpoint"));
}

TEST(Damage, ManyAreNamedInOneLine) {
  std::vector<TensorSpec> tensors;
  tensors.reserve(9);
  for (int i = 0; i < 9; ++i) tensors.push_back({"a/t" + std::to_string(i), DType::int8, {10}});
  const Made made = make_snapshot(std::move(tensors), {});
  MemoryFileSystem disk;
  write(disk, "/a", made);
  for (std::size_t i = 0; i < 9; ++i) disk.flip_bit("/a", made.plan->layout->offset(i));
  const std::string reason = judge(disk.get("/a"));
  EXPECT_THAT(reason, HasSubstr("tensor a/t0 "));
  EXPECT_THAT(reason, HasSubstr("and 5 more: digests differ"));
}

TEST(Version, NewerIsBelievedOnlyWithItsDigest) {
  EXPECT_THAT(judge(of_format(7, 2)), StartsWith("newer: format 7 needs a reader of format 2"));
  EXPECT_EQ(judge(of_format(7, 1)), "good");
  EXPECT_THAT(judge(of_format(0, 0)), HasSubstr("cannot be"));
  EXPECT_THAT(judge(of_format(1, 0)), HasSubstr("cannot be"));
  std::vector<std::byte> file = of_format(7, 2);
  file[kFormatVersionAt] ^= std::byte{1};
  EXPECT_EQ(judge(file), "header: digest differs");
}

TEST(Version, NewerIsToldFromItsHeaderAlone) {
  // Nothing but the first 4096 bytes may be needed: the rest can look different.
  const std::vector<std::byte> file = of_format(2, 2);
  EXPECT_THAT(judge(std::span(file).first(4096)), StartsWith("newer: "));
}

}}  // namespace holdfast::test
