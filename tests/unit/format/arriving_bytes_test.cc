// A copy is verified while it arrives: whole in any pieces, and seen to differ whatever happens to it.
#include "holdfast/format/arriving_bytes.h"

#include <gtest/gtest.h>

#include <random>

#include "support/fault_file_system.h"
#include "unit/format/checkpoint_maker.h"

namespace holdfast::test { namespace {

class Arriving : public testing::Test {
 protected:
  // Whether a copy with these bytes counts as one of `original`.
  bool is_whole(std::span<const std::byte> original, std::span<const std::byte> copy, std::size_t most) {
    MemoryFileSystem disk;
    disk.put("/file", std::vector<std::byte>(original.begin(), original.end()));
    const auto file = disk.open_file("/file", OpenMode::read);
    const auto index = read_index(*file);
    auto bytes = ArrivingBytes::of(*file, std::get<CheckpointIndex>(index));
    while (!copy.empty()) {
      const std::size_t count = std::min<std::size_t>(copy.size(), 1 + random_() % most);
      bytes->append(copy.first(count));
      copy = copy.subspan(count);
    }
    return bytes->is_whole();
  }
  std::mt19937 random_{1};
};

TEST_F(Arriving, IsWholeInPiecesOfAnySize) {
  const std::vector<std::byte> file = small_file();
  for (const std::size_t most : {1, 7, 4096, 1 << 20}) EXPECT_TRUE(is_whole(file, file, most)) << most;
}

TEST_F(Arriving, IsWholeWhereATensorHasSeveralDigestPieces) {
  MemoryFileSystem disk;
  write(disk, "/file",
        make_snapshot({{"model/a", DType::uint8, {static_cast<std::int64_t>(2 * kDigestPiece)}},
                       {"model/b", DType::uint8, {static_cast<std::int64_t>(kDigestPiece) + 5}}},
                      small_attributes()));
  std::vector<std::byte> file = disk.get("/file");
  const std::vector<std::byte> original = file;
  EXPECT_TRUE(is_whole(original, file, 3 << 20));
  file[2 * kDigestPiece - 1] ^= std::byte{1};
  EXPECT_FALSE(is_whole(original, file, 3 << 20));
}

TEST_F(Arriving, EveryFlippedBitIsSeen) {
  const std::vector<std::byte> original = small_file();
  std::vector<std::byte> copy = original;
  for (std::size_t at = 0; at < copy.size(); at += 61) {
    const std::byte bit{static_cast<unsigned char>(1u << (at % 8))};
    copy[at] ^= bit;
    ASSERT_FALSE(is_whole(original, copy, 5000)) << "byte " << at;
    copy[at] ^= bit;
  }
}

TEST_F(Arriving, EveryOtherLengthIsSeen) {
  const std::vector<std::byte> original = small_file();
  for (std::size_t length = 0; length < original.size(); length += 509) {
    ASSERT_FALSE(is_whole(original, std::span(original).first(length), 5000)) << length;
  }
  ASSERT_FALSE(is_whole(original, std::span(original).first(original.size() - 1), 5000));
  std::vector<std::byte> longer = original;
  longer.push_back(std::byte{0});
  ASSERT_FALSE(is_whole(original, longer, 5000));
}

// Equal to its source, and yet not what was saved.
TEST_F(Arriving, ACopyOfADamagedFileIsNotWhole) {
  std::vector<std::byte> damaged = small_file();
  damaged[damaged.size() - 1] ^= std::byte{4};
  EXPECT_FALSE(is_whole(damaged, damaged, 5000));
}

TEST_F(Arriving, OnlyTheHeadOfTheFileIsRead) {
  MemoryFileSystem disk;
  write(disk, "/file",
        make_snapshot({{"model/a", DType::uint8, {std::int64_t{1} << 22}}}, small_attributes()));
  FaultFileSystem counted(disk);
  const auto file = counted.open_file("/file", OpenMode::read);
  const auto index = read_index(*file);
  const std::uint64_t head = std::get<CheckpointIndex>(index).user_block;
  counted.clear_log();
  EXPECT_TRUE(ArrivingBytes::of(*file, std::get<CheckpointIndex>(index)));
  std::uint64_t read = 0;
  for (const Operation& operation : counted.log()) {
    if (operation.kind == Op::read) read += operation.length;
  }
  EXPECT_EQ(read, head);
}

}}  // namespace holdfast::test
