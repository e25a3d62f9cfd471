// Crops, mirrors and normalises a batch of pictures where their bytes are: augment_picture() on a device. A
// block a picture, its floats in the order of memory. Integers and a table, no arithmetic on floats: all
// devices give equal results.
//
// Threads: those of a launch; see device_code.h.
#pragma once

#include "holdfast/kernels/device_code.h"

namespace holdfast { inline namespace v0_2 { namespace kernels {

struct CropFlipNormalize {
  static constexpr int kThreads = 256, kBlocksPerMultiprocessor = 4, kSteps = 1;
  static constexpr int kLevels = 257, kPadding = 256;  // of a channel's table
  struct Shared {};

  const unsigned char* records;  // a label, then planes of height x width, for each picture of the data set
  const Index* choices;          // sample, top, left, flip: for each picture of the batch
  const float* table;            // kLevels for each channel
  float* inputs;
  Index* targets;
  int channels, height, width;
  int padding;
  bool channels_last;  // of the inputs

  template <int kStep>
  void step(const Place& at, Shared&) const {
    const int plane = height * width;
    const int values = channels * plane;
    const Index* const choice = choices + Index{at.block_x} * 4;
    const unsigned char* const record = records + choice[0] * (1 + values);
    float* const out = inputs + Index{at.block_x} * values;
    if (at.thread == 0) targets[at.block_x] = record[0];
    for (int i = at.thread; i < values; i += kThreads) {
      const int channel = channels_last ? i % channels : i / plane;
      const int pixel = channels_last ? i / channels : i % plane;
      const int x = pixel % width;
      const int from_x = (choice[3] != 0 ? width - 1 - x : x) + static_cast<int>(choice[2]) - padding;
      const int from_y = pixel / width + static_cast<int>(choice[1]) - padding;
      const bool inside = from_x >= 0 && from_x < width && from_y >= 0 && from_y < height;
      const int level = inside ? record[1 + channel * plane + from_y * width + from_x] : kPadding;
      out[i] = table[channel * kLevels + level];
    }
  }
};

}}}  // namespace holdfast::v0_2::kernels
