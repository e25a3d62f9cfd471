// How a matrix of [rows, channels] in memory, a picture batch in NHWC, is dealt out to threads. A thread owns
// the channels of one pack for its whole life; the block's threads stand side by side on channels (lanes) and
// below each other on rows (depth). The grid's x are the groups of channels, its y are slabs: row r belongs
// to the slab (r / depth) % slabs.
//
// Threads: values.
#pragma once

#include "holdfast/kernels/device_code.h"

namespace holdfast { inline namespace v0_2 { namespace kernels {

inline constexpr int kBlockThreads = 256;
// Blocks of a streaming kernel on one multiprocessor. A thread has 128 registers then, enough for its loads
// in flight.
inline constexpr int kBlocksAtOnce = 2;

struct Tiling {
  Index rows;
  int channels;
  int lanes, depth;  // lanes * depth <= kBlockThreads; the remaining threads are idle
  int groups, slabs;

  // The distance of a thread's rows.
  Index stride() const { return Index{depth} * slabs; }
};

struct Mine {
  int lane, row;      // in the block
  int pack, channel;  // pack: of those of a row; channel: the first of the pack
  Index first_row;
  bool works;
};

template <class T>
Mine mine_of(const Tiling& tiling, const Place& at) {
  Mine mine;
  mine.lane = at.thread % tiling.lanes;
  mine.row = at.thread / tiling.lanes;
  mine.pack = at.block_x * tiling.lanes + mine.lane;
  mine.channel = mine.pack * kPerPack<T>;
  mine.first_row = Index{at.block_y} * tiling.depth + mine.row;
  mine.works = mine.row < tiling.depth && mine.channel < tiling.channels;
  return mine;
}

// Enough blocks to fill the device, not so many that a thread has nothing to do.
inline Tiling tile(Index rows, int channels, int per_pack, int multiprocessors) {
  constexpr int kWarp = 32, kRowsAtLeast = 8;
  const int packs = channels / per_pack;
  Tiling tiling{};
  tiling.rows = rows;
  tiling.channels = channels;
  tiling.lanes = packs < kWarp ? packs : kWarp;
  tiling.depth = kBlockThreads / tiling.lanes;
  tiling.groups = (packs + tiling.lanes - 1) / tiling.lanes;
  const Index wanted = (Index{multiprocessors} * kBlocksAtOnce + tiling.groups - 1) / tiling.groups;
  const Index rows_at_least = Index{tiling.depth} * kRowsAtLeast;
  const Index useful = (rows + rows_at_least - 1) / rows_at_least;
  tiling.slabs = static_cast<int>(wanted < useful ? wanted : useful);
  return tiling;
}

}}}  // namespace holdfast::v0_2::kernels
