#include "holdfast/data/synthetic.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr int kClasses = 10;
constexpr int kPictureSide = 32;
constexpr int kPlane = kPictureSide * kPictureSide;

// splitmix64's finalizer: one short chain gives eight bytes of noise.
constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// A triangle wave of period 64 between -32 and 32. Integers only, no libm, so bytes are equal everywhere.
constexpr int wave(int phase) {
  const int t = phase & 63;
  return t < 32 ? 2 * t - 32 : 96 - 2 * t;
}

// Each class has its own direction and frequency of stripes and its own colour cast. Mirroring keeps the
// class, because each direction also occurs mirrored.
struct Style {
  int step_x;
  int step_y;
  std::array<int, 3> cast;
};
constexpr std::array<Style, kClasses> kStyles{{{2, 0, {24, 0, -24}},
                                               {6, 0, {-24, 24, 0}},
                                               {0, 2, {0, -24, 24}},
                                               {0, 6, {24, 24, -24}},
                                               {4, 2, {-24, 0, 24}},
                                               {2, 4, {24, -24, 0}},
                                               {6, 6, {0, 24, -24}},
                                               {10, 0, {-24, -24, 24}},
                                               {0, 10, {24, -24, 24}},
                                               {8, 8, {-24, 24, 24}}}};

void draw(std::uint64_t key, std::uint8_t* record) {
  const std::uint64_t traits = mix(key);
  const auto label = static_cast<int>(traits % kClasses);
  const Style& style = kStyles[static_cast<std::size_t>(label)];
  // Bits of one draw are enough: they decide phase, contrast and direction.
  const int phase = static_cast<int>(traits >> 8 & 63);
  const int contrast = 8 + static_cast<int>(traits >> 16 & 31);  // in 32nds
  const int step_x = traits >> 24 & 1 ? style.step_x : -style.step_x;
  *record++ = static_cast<std::uint8_t>(label);

  std::array<std::int16_t, 64> levels;
  for (std::size_t i = 0; i < levels.size(); ++i) {
    levels[i] = static_cast<std::int16_t>(128 - 48 + wave(static_cast<int>(i)) * contrast / 32);
  }
  std::array<std::int16_t, kPlane> stripes;
  std::int16_t* stripe = stripes.data();
  for (int y = 0; y < kPictureSide; ++y) {
    for (int x = 0; x < kPictureSide; ++x) *stripe++ = levels[(step_x * x + style.step_y * y + phase) & 63U];
  }
  for (std::size_t c = 0; c < 3; ++c, record += kPlane) {
    std::array<std::uint8_t, kPlane> noise;
    for (std::size_t i = 0; i < kPlane; i += 8) {
      // The odd constant spreads the counter over all bits.
      const std::uint64_t bits = mix(traits + (c * kPlane + i + 1) * 0xD1B54A32D192ED03u);
      std::memcpy(noise.data() + i, &bits, sizeof bits);
    }
    const auto cast = static_cast<std::int16_t>(style.cast[c] * contrast / 32);
    std::array<std::uint8_t, kPlane> plane;  // separate: writes through `record` could alias the inputs
    for (std::size_t i = 0; i < kPlane; ++i) {
      const auto level = static_cast<std::int16_t>(stripes[i] + cast + noise[i] * 3 / 8);
      plane[i] = static_cast<std::uint8_t>(std::clamp<std::int16_t>(level, 0, 255));
    }
    std::memcpy(record, plane.data(), kPlane);
  }
}

PictureSet make(const char* name, std::int64_t count, std::uint64_t stream) {
  PictureSet set(name, count, {}, kClasses);
  for (std::int64_t i = 0; i < count; ++i) draw(mix(stream) + static_cast<std::uint64_t>(i), set.record(i));
  return set;
}

}  // namespace

PictureSplits synthetic_pictures(std::int64_t count) {
  if (count < 1)
    throw UsageError("synthetic pictures: the count must be at least 1, not " + std::to_string(count));
  return {make("synthetic-train", count, 1),
          // A stream of its own: test pictures never occur in the training set.
          make("synthetic-test", std::max<std::int64_t>(10, count / 5), 2)};
}

}}  // namespace holdfast::v0_2
