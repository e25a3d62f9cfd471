// The kernel of pictures on the device, against loops: in any order of blocks and threads, and nothing is read or written
// outside of the memory that it is given. (resident_pictures_test.cc compares whole batches with those of the host.)
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "holdfast/data/internal/crop_flip_normalize_kernel.h"
#include "unit/kernels/disordered.h"

namespace holdfast::test { namespace {

using kernels::CropFlipNormalize;
using kernels::Index;

struct PictureCase {
  int channels, height, width, padding;
};

TEST(CropFlipNormalize, IsTheLoopsResultInAnyOrder) {
  constexpr int kPictures = 5, kBatch = 7;
  for (const auto& [channels, height, width, padding] :
       {PictureCase{3, 32, 32, 4}, PictureCase{1, 7, 5, 0}, PictureCase{4, 3, 65, 3}, PictureCase{3, 1, 1, 1},
        PictureCase{2, 17, 19, 16}}) {
    SCOPED_TRACE(std::to_string(channels) + "x" + std::to_string(height) + "x" + std::to_string(width));
    std::mt19937 random(3);
    const auto below = [&](int limit) { return static_cast<int>(random() % static_cast<unsigned>(limit)); };
    const int plane = height * width, values = channels * plane;
    const GuardedMemory<unsigned char> records(static_cast<std::size_t>(kPictures * (1 + values)));
    for (unsigned char& byte : records.values()) byte = static_cast<unsigned char>(random());
    const GuardedMemory<float> table(static_cast<std::size_t>(channels * CropFlipNormalize::kLevels));
    for (float& value : table.values()) value = static_cast<float>(below(100'000)) / 1000;
    const GuardedMemory<Index> choices(4 * kBatch);
    for (int i = 0; i < kBatch; ++i) {
      const Index row[] = {below(kPictures), below(2 * padding + 1), below(2 * padding + 1), i % 2};
      for (int field = 0; field < 4; ++field) choices.data()[4 * i + field] = row[field];
    }
    for (const bool channels_last : {false, true}) {
      for (const std::uint32_t seed : {0U, 1U, 2U}) {
        const GuardedMemory<float> inputs(static_cast<std::size_t>(kBatch * values));
        const GuardedMemory<Index> targets(kBatch);
        const CropFlipNormalize kernel{.records = records.data(),
                                       .choices = choices.data(),
                                       .table = table.data(),
                                       .inputs = inputs.data(),
                                       .targets = targets.data(),
                                       .channels = channels,
                                       .height = height,
                                       .width = width,
                                       .padding = padding,
                                       .channels_last = channels_last};
        launch_disordered(kernel, {.x = kBatch}, seed);
        for (int n = 0; n < kBatch; ++n) {
          const Index* const choice = choices.data() + 4 * n;
          const unsigned char* const record = records.data() + choice[0] * (1 + values);
          ASSERT_EQ(targets.data()[n], record[0]);
          for (int c = 0; c < channels; ++c) {
            for (int y = 0; y < height; ++y) {
              for (int x = 0; x < width; ++x) {
                const Index from_y = y + choice[1] - padding;
                const Index from_x = (choice[3] != 0 ? width - 1 - x : x) + choice[2] - padding;
                const bool black = from_y < 0 || from_y >= height || from_x < 0 || from_x >= width;
                const int level = black ? 256 : record[1 + c * plane + from_y * width + from_x];
                const int at = channels_last ? (y * width + x) * channels + c : c * plane + y * width + x;
                ASSERT_EQ(inputs.data()[n * values + at], table.data()[c * 257 + level])
                    << n << " " << c << " " << y << " " << x << " order " << seed;
              }
            }
          }
        }
      }
    }
  }
}

}}  // namespace holdfast::test
