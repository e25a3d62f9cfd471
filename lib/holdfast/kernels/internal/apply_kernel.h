// y = relu?(x * scale + shift [+ z]), scale and shift of each channel. One rounding, at the end.
//
// Threads: as device_code.h says.
#pragma once

#include "holdfast/kernels/internal/tiling.h"

namespace holdfast { inline namespace v0_2 { namespace kernels {

// What a batch norm does to a channel. The backward pass computes the very same value again.
struct Line {
  float scale, shift;
  float at(float x) const { return fmaf(x, scale, shift); }
};

struct Channels {
  const float* weight;
  const float* bias;
  const float* mean;
  const float* deviation;  // 1 / sqrt(variance + epsilon)

  Line line(int channel) const {
    const float scale = weight[channel] * deviation[channel];
    return {scale, fmaf(-mean[channel], scale, bias[channel])};
  }
};

// Whether a ReLU lets the gradient of an output pass; NaN passes, as in Torch.
template <class T>
bool is_open(T y) {
  return !(to_float(y) <= 0.f);
}

// kMask: also one bit an element, is_open(y), as the backward pass cannot tell it from x where z was added.
template <class T, bool kAdd, bool kRelu, bool kMask>
struct Apply {
  static constexpr int kThreads = kBlockThreads, kBlocksPerMultiprocessor = kBlocksAtOnce, kSteps = 1;
  static constexpr int kPer = kPerPack<T>;
  struct Shared {};

  Tiling tiling;
  Channels channels;
  const T* x;
  const T* z;
  T* y;
  unsigned char* mask;  // [rows, packs]

  template <int kStep>
  void step(const Place& at, Shared&) const {
    constexpr int kGroup = kAdd ? 4 : 8;
    const Mine mine = mine_of<T>(tiling, at);
    if (!mine.works) return;
    Line line[kPer];
    HOLDFAST_UNROLL
    for (int i = 0; i < kPer; ++i) line[i] = channels.line(mine.channel + i);
    const Index stride = tiling.stride(), packs = tiling.channels / kPer;
    for (Index row = mine.first_row; row < tiling.rows; row += kGroup * stride) {
      // From the last row to the first: what the pass before this one read last is still in the cache.
      const Index from = tiling.rows - 1 - row;
      Pack<T> px[kGroup], pz[kAdd ? kGroup : 1];
      HOLDFAST_UNROLL
      for (int g = 0; g < kGroup; ++g) {
        if (from - g * stride < 0) continue;
        const Index element = (from - g * stride) * tiling.channels + mine.channel;
        px[g] = load(x + element);
        if constexpr (kAdd) pz[g] = load(z + element);
      }
      HOLDFAST_UNROLL
      for (int g = 0; g < kGroup; ++g) {
        if (from - g * stride < 0) continue;
        Pack<T> out;
        unsigned bits = 0;
        HOLDFAST_UNROLL
        for (int i = 0; i < kPer; ++i) {
          float value = line[i].at(to_float(px[g].value[i]));
          if constexpr (kAdd) value += to_float(pz[g].value[i]);
          if constexpr (kRelu) value = value < 0.f ? 0.f : value;
          out.value[i] = from_float<T>(value);
          if constexpr (kMask) bits |= unsigned{is_open(out.value[i])} << i;
        }
        store(y + (from - g * stride) * tiling.channels + mine.channel, out);
        if constexpr (kMask) mask[(from - g * stride) * packs + mine.pack] = static_cast<unsigned char>(bits);
      }
    }
  }
};

}}}  // namespace holdfast::v0_2::kernels
