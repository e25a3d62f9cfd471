// Mean and variance of each channel, in FP32, by Welford's recurrence (Welford 1962) over groups of rows and
// the merging of Chan, Golub and LeVeque (1979): nothing is lost where the mean is far from zero.
//
// Threads: as device_code.h says.
#pragma once

#include "holdfast/kernels/internal/column_sums.h"

namespace holdfast { inline namespace v0_2 { namespace kernels {

struct Moments {
  float a;  // how many
  float b;  // their mean
  float c;  // the sum of squared distances from it

  void add(const Moments& more) {
    if (more.a == 0.f) return;
    const float count = a + more.a;
    const float share = more.a / count, distance = more.b - b;
    c += more.c + distance * distance * a * share;
    b = fmaf(distance, share, b);
    a = count;
  }
};

template <class T>
struct ChannelMoments {
  static constexpr int kThreads = kBlockThreads, kBlocksPerMultiprocessor = kBlocksAtOnce, kSteps = 5;
  static constexpr int kPer = kPerPack<T>;
  using Sums = ColumnSums<T, Moments>;
  using Shared = typename Sums::Shared;

  Tiling tiling;
  Sums sums;
  const T* x;
  float* mean;          // out, of this batch
  float* deviation;     // out: 1 / sqrt(variance + epsilon)
  float* running_mean;  // updated as torch::nn::BatchNorm2d does, the variance without bias
  float* running_variance;
  float momentum, epsilon;

  template <int kStep>
  void step(const Place& at, Shared& shared) const {
    step_of_sums<kStep>(*this, at, shared);
  }

  void read(const Place& at, Shared& shared) const {
    const Mine mine = mine_of<T>(tiling, at);
    Moments own[kPer];
    HOLDFAST_UNROLL
    for (int i = 0; i < kPer; ++i) own[i] = Moments{};
    float count = 0.f;
    if (mine.works) {
      const Index row = read_in_groups<8>(mine.channel, mine.first_row, count, own);
      read_in_groups<1>(mine.channel, row, count, own);
    }
    HOLDFAST_UNROLL
    for (int i = 0; i < kPer; ++i) own[i].a = count;
    sums.give(at, shared, own);
  }

  // Loads of a group are in flight together. Returns the first row that did not fill one.
  template <int kGroup>
  Index read_in_groups(int channel, Index row, float& count, Moments (&own)[kPer]) const {
    const Index stride = tiling.stride();
    for (; row + (kGroup - 1) * stride < tiling.rows; row += kGroup * stride) {
      Pack<T> pack[kGroup];
      HOLDFAST_UNROLL
      for (int g = 0; g < kGroup; ++g) pack[g] = load(x + (row + g * stride) * tiling.channels + channel);
      const float share = kGroup / (count + kGroup), weight = count * share;
      HOLDFAST_UNROLL
      for (int i = 0; i < kPer; ++i) {
        float value[kGroup], middle = 0.f, squares = 0.f;
        HOLDFAST_UNROLL
        for (int g = 0; g < kGroup; ++g) middle += value[g] = to_float(pack[g].value[i]);
        middle *= 1.f / kGroup;
        HOLDFAST_UNROLL
        for (int g = 0; g < kGroup; ++g) squares = fmaf(value[g] - middle, value[g] - middle, squares);
        const float distance = middle - own[i].b;
        own[i].b = fmaf(distance, share, own[i].b);
        own[i].c += fmaf(distance * distance, weight, squares);
      }
      count += kGroup;
    }
    return row;
  }

  void write(const Place& at, Shared& shared) const {
    int channel = 0;
    Moments all;
    if (!sums.take(tiling, at, shared, channel, all)) return;
    mean[channel] = all.b;
    deviation[channel] = 1.f / sqrtf(all.c / all.a + epsilon);
    const float kept = 1.f - momentum;
    running_mean[channel] = momentum * all.b + kept * running_mean[channel];
    running_variance[channel] = momentum * (all.c / (all.a - 1.f)) + kept * running_variance[channel];
  }
};

}}}  // namespace holdfast::v0_2::kernels
