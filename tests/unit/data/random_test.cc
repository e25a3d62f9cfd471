#include "holdfast/data/random.h"

#include <gtest/gtest.h>

#include <set>

namespace {

using holdfast::philox;
using holdfast::Random4;
using holdfast::sample_bits;
using holdfast::SampleRandom;

// The vectors published with the algorithm (Random123's kat_vectors).
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(philox(0, {0, 0, 0, 0}), (Random4{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~0ull, {~0u, ~0u, ~0u, ~0u}), (Random4{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0a4093822ull, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
            (Random4{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, IsAConstantExpression) { static_assert(philox(0, {0, 0, 0, 0})[0] == 0x6627e8d5); }

TEST(SampleBits, DifferForEachOfSeedEpochSampleAndBlock) {
  const std::set<Random4> all{sample_bits(1, 2, 3),
                              sample_bits(2, 2, 3),
                              sample_bits(1, 3, 3),
                              sample_bits(1, 2, 4),
                              sample_bits(1, 2, 3, 1),
                              sample_bits(1ull << 32, 2, 3),
                              sample_bits(1, 2, 3 + (std::int64_t{1} << 32))};
  EXPECT_EQ(all.size(), 7u);
}

TEST(SampleRandom, RepeatsItselfAndContinuesOverBlocks) {
  SampleRandom a(7, 1, 42);
  SampleRandom b(7, 1, 42);
  std::set<std::uint32_t> seen;
  for (int i = 0; i < 1000; ++i) {
    const auto value = a();
    EXPECT_EQ(value, b());
    seen.insert(value);
  }
  EXPECT_EQ(seen.size(), 1000u);
  EXPECT_EQ(SampleRandom(7, 1, 42)(), sample_bits(7, 1, 42)[0]);
}

TEST(SampleRandom, StaysInRange) {
  SampleRandom random(1, 0, 0);
  std::set<std::uint32_t> digits;
  for (int i = 0; i < 2000; ++i) {
    const float uniform = random.uniform();
    EXPECT_GE(uniform, 0.0F);
    EXPECT_LT(uniform, 1.0F);
    digits.insert(random.below(10));
  }
  EXPECT_EQ(digits.size(), 10u);
  EXPECT_EQ(*digits.rbegin(), 9u);
}

}  // namespace
