// The second half of a sum over rows: from one value a thread and channel to one a channel. In a fixed order,
// so that the bits are the same every time: over a block's rows, then, by the last block of a group of
// channels to arrive, over the slabs.
//
// `Value` is three floats with `void add(const Value&)`; Value{} (all zero) changes nothing.
//
// Threads: as device_code.h says.
#pragma once

#include "holdfast/kernels/internal/tiling.h"

namespace holdfast { inline namespace v0_2 { namespace kernels {

template <class T, class Value>
struct ColumnSums {
  static constexpr int kPer = kPerPack<T>;
  struct Shared {
    Value value[kPer * kBlockThreads];
    bool last;
  };

  float* partial;      // [slabs, channels, 3]
  unsigned* counters;  // [groups], 0 before and after

  // Step A: what this thread has, for each channel of its pack.
  void give(const Place& at, Shared& shared, const Value (&own)[kPer]) const {
    HOLDFAST_UNROLL
    for (int i = 0; i < kPer; ++i) shared.value[i * kBlockThreads + at.thread] = own[i];
  }

  // Step B: one thread a channel.
  void add_rows(const Tiling& tiling, const Place& at, Shared& shared) const {
    const int width = tiling.lanes * kPer;
    const int channel = at.block_x * width + at.thread;
    if (at.thread >= width || channel >= tiling.channels) return;
    const int first = at.thread % kPer * kBlockThreads + at.thread / kPer;
    Value sum = shared.value[first];
    for (int row = 1; row < tiling.depth; ++row) sum.add(shared.value[first + row * tiling.lanes]);
    float* const to = partial + (Index{at.block_y} * tiling.channels + channel) * 3;
    to[0] = sum.a;
    to[1] = sum.b;
    to[2] = sum.c;
    publish();
  }

  // Step C.
  void arrive(const Tiling& tiling, const Place& at, Shared& shared) const {
    if (at.thread == 0) shared.last = arrives_last(counters + at.block_x, tiling.slabs);
  }

  // Step D, in the last block: as many threads a channel as there are.
  void add_slabs(const Tiling& tiling, const Place& at, Shared& shared) const {
    constexpr int kAtOnce = 8;  // independent loads
    const int width = tiling.lanes * kPer, parts = kBlockThreads / width;
    const int part = at.thread / width;
    const int channel = at.block_x * width + at.thread % width;
    if (!shared.last || part >= parts || channel >= tiling.channels) return;
    Value sum{};
    for (int slab = part; slab < tiling.slabs; slab += kAtOnce * parts) {
      Value value[kAtOnce];
      HOLDFAST_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        value[i] = Value{};
        if (slab + i * parts >= tiling.slabs) continue;
        const float* const from = partial + (Index{slab + i * parts} * tiling.channels + channel) * 3;
        value[i] = {load_written(from), load_written(from + 1), load_written(from + 2)};
      }
      HOLDFAST_UNROLL
      for (int i = 0; i < kAtOnce; ++i) sum.add(value[i]);
    }
    shared.value[at.thread] = sum;
  }

  // Step E: true where this thread has the sum of a channel.
  bool take(const Tiling& tiling, const Place& at, const Shared& shared, int& channel, Value& sum) const {
    const int width = tiling.lanes * kPer, parts = kBlockThreads / width;
    channel = at.block_x * width + at.thread;
    if (!shared.last || at.thread >= width || channel >= tiling.channels) return false;
    sum = shared.value[at.thread];
    for (int part = 1; part < parts; ++part) sum.add(shared.value[part * width + at.thread]);
    return true;
  }
};

// The five steps of a kernel that sums over columns: its own read() and write() round those of `sums`.
template <int kStep, class Kernel>
void step_of_sums(const Kernel& kernel, const Place& at, typename Kernel::Shared& shared) {
  if constexpr (kStep == 0) kernel.read(at, shared);
  if constexpr (kStep == 1) kernel.sums.add_rows(kernel.tiling, at, shared);
  if constexpr (kStep == 2) kernel.sums.arrive(kernel.tiling, at, shared);
  if constexpr (kStep == 3) kernel.sums.add_slabs(kernel.tiling, at, shared);
  if constexpr (kStep == 4) kernel.write(at, shared);
}

}}}  // namespace holdfast::v0_2::kernels
