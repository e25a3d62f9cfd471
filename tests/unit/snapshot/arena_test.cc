#include "holdfast/snapshot/arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

#include "holdfast/base/error.h"

namespace holdfast { namespace {

TEST(Arena, IsAlignedZeroedAndPadded) {
  for (const std::uint64_t size : {1ull, 4096ull, 4097ull, 2ull << 20, (2ull << 20) + 1, (9ull << 20) + 5}) {
    const Arena arena(size);
    const auto address = reinterpret_cast<std::uintptr_t>(arena.bytes().data());
    EXPECT_EQ(address % (size > (2u << 20) ? (2u << 20) : 4096u), 0u) << size;
    EXPECT_EQ(arena.size(), size);
    EXPECT_EQ(arena.capacity() % 4096, 0u);
    EXPECT_GE(arena.capacity(), size);
    EXPECT_LT(arena.capacity() - size, 4096u);
    const auto padded = arena.padded();
    EXPECT_TRUE(std::all_of(padded.begin(), padded.end(), [](std::byte b) { return b == std::byte{0}; }));
  }
}

TEST(Arena, MayBeEmpty) {
  const Arena arena(0);
  EXPECT_TRUE(arena.bytes().empty());
  EXPECT_EQ(arena.capacity(), 0u);
}

TEST(Arena, RefusesWhatMemoryCannotHold) {
  for (const std::uint64_t size :
       {std::uint64_t{1} << 60, std::uint64_t{1} << 62, std::numeric_limits<std::uint64_t>::max()}) {
    try {
      const Arena arena(size);
      FAIL() << size;
    } catch (const RefusedError& error) {
      EXPECT_NE(std::string(error.what()).find("no memory for an image of "), std::string::npos)
          << error.what();
    }
  }
}

}}  // namespace holdfast
