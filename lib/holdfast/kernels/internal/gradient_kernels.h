// The backward pass of y = relu?(bn(x) [+ z]), in two passes over memory:
//
//   OutputGradients   d = (dy [+ dy2]) where the ReLU is open; sums of d and d * (x - mean); d is kept
//                     where it is the gradient of z or the sum of two
//   InputGradient     dx = k1 * d + k2 * (x - mean) + k3
//
// with s = deviation, M rows:  dweight = s * sum(d * (x - mean)), dbias = sum(d), k1 = weight * s,
// k2 = -k1 * s * dweight / M, k3 = -k1 * dbias / M; k2 = k3 = 0 where the statistics were not the batch's
// own.
//
// Threads: as device_code.h says.
#pragma once

#include "holdfast/kernels/internal/apply_kernel.h"
#include "holdfast/kernels/internal/column_sums.h"

namespace holdfast { inline namespace v0_2 { namespace kernels {

struct Sums {
  float a, b;
  float c;  // of nothing: values are three floats
  void add(const Sums& more) {
    a += more.a;
    b += more.b;
  }
};

// kRelu: the ReLU's state is in the mask (kMask), or is what forward's arithmetic says again of x.
template <class T, bool kSecond, bool kRelu, bool kMask>
struct OutputGradients {
  static constexpr int kThreads = kBlockThreads, kBlocksPerMultiprocessor = kBlocksAtOnce, kSteps = 5;
  static constexpr int kPer = kPerPack<T>;
  static constexpr bool kKeep = kSecond || kMask;
  using Reduction = ColumnSums<T, Sums>;
  using Shared = typename Reduction::Shared;

  Tiling tiling;
  Reduction sums;
  Channels channels;
  const T* dy;
  const T* dy2;
  const T* x;
  const unsigned char* mask;
  T* d;  // out, where kKeep
  float* weight_gradient;
  float* bias_gradient;
  float* coefficients;  // out: k1, k2, k3 of each channel
  bool own_statistics;  // mean and variance were the batch's

  template <int kStep>
  void step(const Place& at, Shared& shared) const {
    step_of_sums<kStep>(*this, at, shared);
  }

  void read(const Place& at, Shared& shared) const {
    constexpr int kGroup = kSecond ? 2 : 4;
    const Mine mine = mine_of<T>(tiling, at);
    Sums own[kPer];
    HOLDFAST_UNROLL
    for (int i = 0; i < kPer; ++i) own[i] = Sums{};
    if (mine.works) {
      Line line[kPer];
      float mean[kPer];
      HOLDFAST_UNROLL
      for (int i = 0; i < kPer; ++i) {
        line[i] = channels.line(mine.channel + i);
        mean[i] = channels.mean[mine.channel + i];
      }
      const Index stride = tiling.stride(), packs = tiling.channels / kPer;
      for (Index row = mine.first_row; row < tiling.rows; row += kGroup * stride) {
        Pack<T> py[kGroup], px[kGroup], p2[kSecond ? kGroup : 1];
        unsigned bits[kGroup];
        HOLDFAST_UNROLL
        for (int g = 0; g < kGroup; ++g) {
          if (row + g * stride >= tiling.rows) continue;
          const Index element = (row + g * stride) * tiling.channels + mine.channel;
          py[g] = load(dy + element);
          px[g] = load(x + element);
          if constexpr (kSecond) p2[g] = load_once(dy2 + element);
          if constexpr (kMask) bits[g] = mask[(row + g * stride) * packs + mine.pack];
        }
        HOLDFAST_UNROLL
        for (int g = 0; g < kGroup; ++g) {
          if (row + g * stride >= tiling.rows) continue;
          Pack<T> out;
          HOLDFAST_UNROLL
          for (int i = 0; i < kPer; ++i) {
            const float value = to_float(px[g].value[i]);
            float gradient = to_float(py[g].value[i]);
            // Rounded to T as a separate addition would do, so that the sums use the value that is stored.
            if constexpr (kSecond) gradient = to_float(from_float<T>(gradient + to_float(p2[g].value[i])));
            if constexpr (kRelu && kMask) gradient = (bits[g] >> i & 1u) != 0 ? gradient : 0.f;
            if constexpr (kRelu && !kMask) {
              gradient = is_open(from_float<T>(line[i].at(value))) ? gradient : 0.f;
            }
            if constexpr (kKeep) out.value[i] = from_float<T>(gradient);
            own[i].a += gradient;
            own[i].b = fmaf(gradient, value - mean[i], own[i].b);
          }
          if constexpr (kKeep) store(d + (row + g * stride) * tiling.channels + mine.channel, out);
        }
      }
    }
    sums.give(at, shared, own);
  }

  void write(const Place& at, Shared& shared) const {
    int channel = 0;
    Sums all;
    if (!sums.take(tiling, at, shared, channel, all)) return;
    const float deviation = channels.deviation[channel];
    const float dweight = all.b * deviation, k1 = channels.weight[channel] * deviation;
    const float share = own_statistics ? 1.f / static_cast<float>(tiling.rows) : 0.f;
    weight_gradient[channel] = dweight;
    bias_gradient[channel] = all.a;
    coefficients[3 * channel] = k1;
    coefficients[3 * channel + 1] = -k1 * deviation * dweight * share;
    coefficients[3 * channel + 2] = -k1 * all.a * share;
  }
};

// kRelu: `d` is dy, and the ReLU's state is to be computed again.
template <class T, bool kRelu>
struct InputGradient {
  static constexpr int kThreads = kBlockThreads, kBlocksPerMultiprocessor = kBlocksAtOnce, kSteps = 1;
  static constexpr int kPer = kPerPack<T>;
  struct Shared {};

  Tiling tiling;
  Channels channels;
  const T* d;
  const T* x;
  const float* coefficients;
  T* dx;

  template <int kStep>
  void step(const Place& at, Shared&) const {
    constexpr int kGroup = 4;
    const Mine mine = mine_of<T>(tiling, at);
    if (!mine.works) return;
    Line line[kPer];
    float mean[kPer], k1[kPer], k2[kPer], k3[kPer];
    HOLDFAST_UNROLL
    for (int i = 0; i < kPer; ++i) {
      const int channel = mine.channel + i;
      line[i] = channels.line(channel);
      mean[i] = channels.mean[channel];
      k1[i] = coefficients[3 * channel];
      k2[i] = coefficients[3 * channel + 1];
      k3[i] = coefficients[3 * channel + 2];
    }
    const Index stride = tiling.stride();
    for (Index row = mine.first_row; row < tiling.rows; row += kGroup * stride) {
      const Index from = tiling.rows - 1 - row;  // as Apply: against the direction of the pass before
      Pack<T> pd[kGroup], px[kGroup];
      HOLDFAST_UNROLL
      for (int g = 0; g < kGroup; ++g) {
        if (from - g * stride < 0) continue;
        const Index element = (from - g * stride) * tiling.channels + mine.channel;
        pd[g] = load_once(d + element);
        px[g] = load_once(x + element);
      }
      HOLDFAST_UNROLL
      for (int g = 0; g < kGroup; ++g) {
        if (from - g * stride < 0) continue;
        Pack<T> out;
        HOLDFAST_UNROLL
        for (int i = 0; i < kPer; ++i) {
          const float value = to_float(px[g].value[i]);
          float gradient = to_float(pd[g].value[i]);
          if constexpr (kRelu) gradient = is_open(from_float<T>(line[i].at(value))) ? gradient : 0.f;
          out.value[i] = from_float<T>(fmaf(k1[i], gradient, fmaf(k2[i], value - mean[i], k3[i])));
        }
        store(dx + (from - g * stride) * tiling.channels + mine.channel, out);
      }
    }
  }
};

}}}  // namespace holdfast::v0_2::kernels
