// Random crop and horizontal flip of small pictures, fused with normalisation: bytes in, float32 out.
//
// Each choice is an integer drawn for (seed, epoch, sample). Each float is an entry of a table of 257 floats
// a channel: levels 0 to 255, and 256 for padding. The kernel computes entries with the same two correctly
// rounded operations as the table, so all CPUs give equal bits. Padding is black before it is normalised, as
// in torchvision: entry 256 equals entry 0.
//
// Errors: none here; PictureDataset and ResidentPictures check the options. Threads: pure functions.
#pragma once

#include <array>
#include <cstdint>

#include "holdfast/base/export.h"

namespace holdfast { inline namespace v0_2 {

struct PictureShape {
  int channels = 3;  // at most 4
  int height = 32;
  int width = 32;
  std::int64_t bytes() const { return std::int64_t{channels} * height * width; }
  bool operator==(const PictureShape&) const = default;
};

struct AugmentOptions {
  // Pixels of padding on all sides, 0 to the picture's side; the crop starts anywhere in the padded picture.
  // 0: no crop. 4 is CIFAR-10's usual value.
  int padding = 4;
  bool flip = true;  // mirrors half of the pictures
  // Mean and standard deviation of the training pictures per channel, as shares of 255. Defaults: CIFAR-10's.
  std::array<float, 4> mean{0.4914F, 0.4822F, 0.4465F, 0.0F};
  std::array<float, 4> stddev{0.2470F, 0.2435F, 0.2616F, 1.0F};

  // This normalisation without augmentation.
  AugmentOptions for_evaluation() const {
    AugmentOptions copy = *this;
    copy.padding = 0;
    copy.flip = false;
    return copy;
  }
};

// The augmentation of one picture in one epoch: the crop's corner in the padded picture, and the mirror.
struct AugmentChoice {
  int top = 0;
  int left = 0;
  bool flip = false;
};
HOLDFAST_EXPORT AugmentChoice choose_augmentation(const AugmentOptions& options, std::uint64_t seed,
                                                  std::int64_t epoch, std::int64_t sample);

// value(c, level) = (level - shift[c]) * scale[c] in float32. The subtraction and the multiplication round
// separately; a compiler cannot contract them.
struct HOLDFAST_EXPORT NormalizeTable {
  static constexpr int kPadding = 256;
  std::array<float, 4> shift{};
  std::array<float, 4> scale{};
  std::array<std::array<float, 257>, 4> value{};

  explicit NormalizeTable(const AugmentOptions& options);
};

// Crops, mirrors and normalises one picture. `source` has shape.bytes() bytes (planes), `out` as many floats.
HOLDFAST_EXPORT void augment_picture(const std::uint8_t* source, const PictureShape& shape, int padding,
                                     AugmentChoice choice, const NormalizeTable& table, float* out);

}}  // namespace holdfast::v0_2
