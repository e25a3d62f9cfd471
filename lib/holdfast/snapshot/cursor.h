// A run's position in its data: how many samples of the current epoch optimizer steps have *applied*. `epoch`
// is a pass over the data, counted from 0. The end of an epoch may be {e, size} or {e + 1, 0}; Holdfast
// writes {e + 1, 0} only once the next epoch has begun. A position is that of all ranks together; each takes
// its part of every batch.
//
// Threads: a plain value.
#pragma once

#include <compare>
#include <cstdint>

namespace holdfast { inline namespace v0_2 {

struct Cursor {
  std::int64_t epoch = 0;
  std::int64_t samples = 0;
  auto operator<=>(const Cursor&) const = default;
};

// The part of every global batch that this process takes.
struct Shard {
  std::int64_t rank = 0;
  std::int64_t world = 1;
  auto operator<=>(const Shard&) const = default;
};

// What ends with the samples that the last update applied. After `run` the program wants no more data.
enum class DataEnd { none, epoch, run };

}}  // namespace holdfast::v0_2
