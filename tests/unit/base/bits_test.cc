#include "holdfast/base/bits.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <random>

namespace holdfast { namespace {

TEST(Bits, HexIsTheBitPattern) {
  EXPECT_EQ(bits_hex(1.0), "3ff0000000000000");
  EXPECT_EQ(bits_hex(-0.0), "8000000000000000");
  EXPECT_EQ(bits_hex(1.0f), "3f800000");
}

TEST(Bits, EveryPatternComesBack) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 20000; ++i) {
    const std::uint64_t bits = random();
    const auto value = std::bit_cast<double>(bits);
    const auto back = double_from_bits_hex(bits_hex(value));
    ASSERT_TRUE(back);
    EXPECT_EQ(std::bit_cast<std::uint64_t>(*back), bits);
    if (std::isfinite(value)) {
      EXPECT_EQ(std::strtod(shortest_decimal(value).c_str(), nullptr), value);
    }
    const auto narrow = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    if (std::isfinite(narrow)) {
      EXPECT_EQ(std::strtof(shortest_decimal(narrow).c_str(), nullptr), narrow);
    }
  }
}

TEST(Bits, RefusesWhatIsNotSixteenDigits) {
  for (const char* text :
       {"", "3ff", "3ff000000000000g", "3ff00000000000000", "-3ff000000000000", "0x3ff00000000000"}) {
    EXPECT_EQ(double_from_bits_hex(text), std::nullopt) << text;
  }
  EXPECT_EQ(double_from_bits_hex("3FF0000000000000"), 1.0);
}

TEST(Bits, DecimalsAreShortAndNonFiniteOnesAreWords) {
  EXPECT_EQ(shortest_decimal(0.1), "0.1");
  EXPECT_EQ(shortest_decimal(0.1f), "0.1");
  EXPECT_EQ(shortest_decimal(-0.0), "-0");
  EXPECT_EQ(shortest_decimal(-std::numeric_limits<double>::quiet_NaN()), "nan");
  EXPECT_EQ(shortest_decimal(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(shortest_decimal(-std::numeric_limits<float>::infinity()), "-inf");
  std::array<char, 32> buffer{};
  const std::size_t length = write_shortest_decimal(-2.2250738585072014e-308, buffer);
  EXPECT_EQ(std::string(buffer.data(), length), "-2.2250738585072014e-308");
}

}}  // namespace holdfast
