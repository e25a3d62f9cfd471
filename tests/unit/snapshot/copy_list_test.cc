// Gathered copies: every byte arrives, and none beside its place, however they are cut and aligned.
#include "holdfast/snapshot/copy_list.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "holdfast/snapshot/internal/stream_copy.h"

namespace holdfast::test { namespace {

std::vector<std::byte> pattern(std::size_t bytes, std::uint32_t seed) {
  std::vector<std::byte> made(bytes);
  for (std::byte& byte : made) {
    seed = seed * 1664525 + 1013904223;
    byte = static_cast<std::byte>(seed >> 24);
  }
  return made;
}

TEST(StreamCopy, CopiesEveryByteAndNoOther) {
  const auto from = pattern(200000, 1);
  for (const std::size_t bytes : {0, 1, 63, 64, 32767, 32768, 32769, 65536, 100001}) {
    for (const std::size_t shift : {0, 1, 31, 32, 63, 64}) {
      for (const std::size_t skip : {0, 3, 64}) {
        std::vector<std::byte> to(bytes + 256, std::byte{0xee});
        internal::stream_copy(to.data() + shift, from.data() + skip, bytes);
        ASSERT_EQ(std::memcmp(to.data() + shift, from.data() + skip, bytes), 0) << bytes << ' ' << shift;
        const auto untouched = [](std::byte byte) { return byte == std::byte{0xee}; };
        ASSERT_TRUE(std::all_of(to.begin(), to.begin() + static_cast<std::ptrdiff_t>(shift), untouched));
        ASSERT_TRUE(
            std::all_of(to.begin() + static_cast<std::ptrdiff_t>(shift + bytes), to.end(), untouched));
      }
    }
  }
}

TEST(CopyList, ThreadsShareIt) {
  const auto from = pattern(5 << 20, 2);
  std::vector<std::byte> to(from.size() + 1000);
  CopyList copies;
  std::vector<std::pair<std::size_t, std::size_t>> places;  // from, to
  std::size_t at = 0;
  std::size_t target = 1;
  for (std::size_t bytes = 0; at + bytes <= from.size(); bytes = bytes * 3 + 7) {
    copies.add(std::span(from).subspan(at, bytes), std::span(to).subspan(target, bytes));
    places.emplace_back(at, target);
    at += bytes;
    target += bytes + 1;
  }
  EXPECT_EQ(copies.bytes(), at);
  std::thread helper([&] { copies.work(); });
  copies.work();
  helper.join();
  for (std::size_t i = 0; i < places.size(); ++i) {
    const auto [begin, place] = places[i];
    const std::size_t end = i + 1 < places.size() ? places[i + 1].first : at;
    EXPECT_EQ(std::memcmp(to.data() + place, from.data() + begin, end - begin), 0) << i;
    EXPECT_EQ(to[place - 1], std::byte{0}) << "nothing beside it";
  }
}

}}  // namespace holdfast::test
