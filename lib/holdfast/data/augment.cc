#include "holdfast/data/augment.h"

#include <algorithm>
#include <cstring>

#include "holdfast/data/random.h"

// One copy of the loops per instruction set; the loader chooses at start-up. Results are equal, because each
// element is one rounded subtraction and one rounded multiplication.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HOLDFAST_KERNEL __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define HOLDFAST_KERNEL
#endif

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr int kSide = 32;

// The common case, planes of 32 x 32, with compile-time constants. Rows are read at their shifted place, and
// values from neighbouring rows are masked to black. The copy has margins, so that these reads stay inside.
HOLDFAST_KERNEL
void plane_32(const std::uint8_t* source, int padding, AugmentChoice choice, float shift, float scale,
              float* out) {
  constexpr int kPlane = kSide * kSide;
  // A row above and one below stay black: a shifted row reads up to 31 bytes before or behind the picture.
  alignas(64) std::uint8_t copy[kPlane + 2 * kSide];
  std::memset(copy, 0, kSide);
  std::memcpy(copy + kSide, source, kPlane);
  std::memset(copy + kSide + kPlane, 0, kSide);

  const int shift_x = choice.left - padding;
  alignas(64) std::uint8_t mask[kSide];
  // All ones keep the value, zeros make the padding black.
  for (int x = 0; x < kSide; ++x) mask[x] = x + shift_x >= 0 && x + shift_x < kSide ? 0xFF : 0;

  for (int y = 0; y < kSide; ++y, out += kSide) {
    const int from = y + choice.top - padding;
    if (from < 0 || from >= kSide) {
      // As a float computes it: padding is black before it is normalised, not zero after.
      for (int x = 0; x < kSide; ++x) out[x] = (0.0F - shift) * scale;
      continue;
    }
    const std::uint8_t* row = copy + kSide + from * kSide + shift_x;
    if (choice.flip) {
      for (int x = 0; x < kSide; ++x) {
        const int mirrored = kSide - 1 - x;
        out[x] = (static_cast<float>(row[mirrored] & mask[mirrored]) - shift) * scale;
      }
    } else {
      for (int x = 0; x < kSide; ++x) out[x] = (static_cast<float>(row[x] & mask[x]) - shift) * scale;
    }
  }
}

void plane_any(const std::uint8_t* source, const PictureShape& shape, int padding, AugmentChoice choice,
               const std::array<float, 257>& value, float* out) {
  for (int y = 0; y < shape.height; ++y) {
    const int from_y = y + choice.top - padding;
    for (int x = 0; x < shape.width; ++x) {
      const int from_x = (choice.flip ? shape.width - 1 - x : x) + choice.left - padding;
      const bool inside = from_y >= 0 && from_y < shape.height && from_x >= 0 && from_x < shape.width;
      *out++ = value[inside ? source[from_y * shape.width + from_x] : NormalizeTable::kPadding];
    }
  }
}

}  // namespace

AugmentChoice choose_augmentation(const AugmentOptions& options, std::uint64_t seed, std::int64_t epoch,
                                  std::int64_t sample) {
  const Random4 bits = sample_bits(seed, epoch, sample);
  // The high half of a product is evenly distributed over the span, without a division.
  const auto span = static_cast<std::uint32_t>(2 * options.padding + 1);
  return {static_cast<int>(mul_hi(bits[0], span)), static_cast<int>(mul_hi(bits[1], span)),
          options.flip && bits[2] >> 31 != 0};
}

NormalizeTable::NormalizeTable(const AugmentOptions& options) {
  for (std::size_t c = 0; c < value.size(); ++c) {
    // In double and then rounded once, so that all machines have the same constants.
    shift[c] = static_cast<float>(255.0 * double{options.mean[c]});
    scale[c] = static_cast<float>(1.0 / (255.0 * double{options.stddev[c]}));
    for (std::size_t level = 0; level < 256; ++level) {
      value[c][level] = (static_cast<float>(level) - shift[c]) * scale[c];
    }
    value[c][kPadding] = value[c][0];
  }
}

void augment_picture(const std::uint8_t* source, const PictureShape& shape, int padding, AugmentChoice choice,
                     const NormalizeTable& table, float* out) {
  const std::int64_t plane = std::int64_t{shape.height} * shape.width;
  for (int c = 0; c < shape.channels; ++c, source += plane, out += plane) {
    const auto channel = static_cast<std::size_t>(c);
    // A padding beyond one row would read outside of the copy.
    if (shape.height == kSide && shape.width == kSide && padding <= kSide) {
      plane_32(source, padding, choice, table.shift[channel], table.scale[channel], out);
    } else {
      plane_any(source, shape, padding, choice, table.value[channel], out);
    }
  }
}

}}  // namespace holdfast::v0_2
