#include "holdfast/data/augment.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <map>
#include <vector>

#include "holdfast/data/random.h"

namespace {

using holdfast::augment_picture;
using holdfast::AugmentChoice;
using holdfast::AugmentOptions;
using holdfast::choose_augmentation;
using holdfast::NormalizeTable;
using holdfast::PictureShape;

std::vector<std::uint8_t> some_picture(const PictureShape& shape) {
  std::vector<std::uint8_t> picture(static_cast<std::size_t>(shape.bytes()));
  for (std::size_t i = 0; i < picture.size(); ++i) {
    picture[i] = static_cast<std::uint8_t>(holdfast::philox(1, {static_cast<std::uint32_t>(i), 0, 0, 0})[0]);
  }
  return picture;
}

// Written from the definition: pad, crop, mirror, look up.
std::vector<float> by_definition(const std::vector<std::uint8_t>& source, const PictureShape& shape,
                                 int padding, AugmentChoice choice, const NormalizeTable& table) {
  const auto height = static_cast<std::size_t>(shape.height);
  const auto width = static_cast<std::size_t>(shape.width);
  const auto margin = static_cast<std::size_t>(padding);
  const std::size_t padded_width = width + 2 * margin;
  std::vector<float> out;
  for (std::size_t c = 0; c < static_cast<std::size_t>(shape.channels); ++c) {
    std::vector<std::size_t> padded((height + 2 * margin) * padded_width, NormalizeTable::kPadding);
    for (std::size_t y = 0; y < height; ++y) {
      for (std::size_t x = 0; x < width; ++x) {
        padded[(y + margin) * padded_width + x + margin] = source[(c * height + y) * width + x];
      }
    }
    for (std::size_t y = 0; y < height; ++y) {
      for (std::size_t x = 0; x < width; ++x) {
        const std::size_t row = y + static_cast<std::size_t>(choice.top);
        const std::size_t column = (choice.flip ? width - 1 - x : x) + static_cast<std::size_t>(choice.left);
        out.push_back(table.value[c][padded[row * padded_width + column]]);
      }
    }
  }
  return out;
}

TEST(AugmentPicture, EqualsTheDefinitionBitForBit) {
  for (const PictureShape shape : {PictureShape{}, PictureShape{1, 28, 28}, PictureShape{4, 7, 5}}) {
    const auto picture = some_picture(shape);
    const NormalizeTable table{AugmentOptions{}};
    for (const int padding : {0, 1, 4, 5}) {
      for (int top = 0; top <= 2 * padding; ++top) {
        for (int left = 0; left <= 2 * padding; ++left) {
          for (const bool flip : {false, true}) {
            const auto expected = by_definition(picture, shape, padding, {top, left, flip}, table);
            std::vector<float> out(expected.size(), -99.0F);
            augment_picture(picture.data(), shape, padding, {top, left, flip}, table, out.data());
            ASSERT_EQ(std::memcmp(out.data(), expected.data(), out.size() * sizeof(float)), 0)
                << shape.width << " padding " << padding << " at " << top << "," << left << " " << flip;
          }
        }
      }
    }
  }
}

TEST(NormalizeTable, HoldsWhatTorchvisionComputesToOneRounding) {
  const AugmentOptions options;
  const NormalizeTable table(options);
  for (std::size_t c = 0; c < 3; ++c) {
    for (int level = 0; level < 256; ++level) {
      const double exact = (level / 255.0 - double{options.mean[c]}) / double{options.stddev[c]};
      EXPECT_NEAR(table.value[c][static_cast<std::size_t>(level)], exact, 4e-7);
    }
    EXPECT_EQ(table.value[c][NormalizeTable::kPadding], table.value[c][0]);
  }
}

// Part of every recorded run, on every CPU.
TEST(NormalizeTable, NeverChanges) {
  const NormalizeTable table{AugmentOptions{}};
  EXPECT_EQ(std::bit_cast<std::uint32_t>(table.value[0][0]), 0xbffea713u);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(table.value[1][128]), 0x3da6339fu);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(table.value[2][255]), 0x400769b1u);
}

TEST(ChooseAugmentation, DependsOnSeedEpochAndSampleAlone) {
  const AugmentOptions options;
  const auto key = [&](std::uint64_t seed, std::int64_t epoch, std::int64_t sample) {
    const AugmentChoice choice = choose_augmentation(options, seed, epoch, sample);
    return (choice.top * 100 + choice.left) * 2 + (choice.flip ? 1 : 0);
  };
  int equal = 0;
  for (std::int64_t sample = 0; sample < 500; ++sample) {
    EXPECT_EQ(key(1, 2, sample), key(1, 2, sample));
    equal += (key(1, 2, sample) == key(1, 3, sample)) + (key(1, 2, sample) == key(2, 2, sample));
  }
  EXPECT_LT(equal, 30);  // 6 are expected by chance
}

TEST(ChooseAugmentation, IsUniform) {
  const AugmentOptions options;
  std::map<int, int> counts;
  constexpr int kDraws = 162'000;
  for (int sample = 0; sample < kDraws; ++sample) {
    const AugmentChoice choice = choose_augmentation(options, 3, 0, sample);
    ASSERT_TRUE(choice.top >= 0 && choice.top <= 8 && choice.left >= 0 && choice.left <= 8);
    ++counts[(choice.top * 9 + choice.left) * 2 + (choice.flip ? 1 : 0)];
  }
  ASSERT_EQ(counts.size(), 162u);
  double chi = 0;
  for (const auto& entry : counts) chi += (entry.second - 1000.0) * (entry.second - 1000.0) / 1000.0;
  EXPECT_LT(chi, 161 + 4.5 * 17.94);
}

TEST(ChooseAugmentation, EvaluationLeavesPicturesAlone) {
  const AugmentOptions options = AugmentOptions{}.for_evaluation();
  for (int sample = 0; sample < 100; ++sample) {
    const AugmentChoice choice = choose_augmentation(options, 3, 0, sample);
    EXPECT_EQ(choice.top, 0);
    EXPECT_EQ(choice.left, 0);
    EXPECT_FALSE(choice.flip);
  }
}

}  // namespace
