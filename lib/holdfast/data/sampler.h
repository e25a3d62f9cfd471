// Which samples a batch is made of: a keyed permutation for the order, and a plan that cuts the order into
// batches. Both are arithmetic: nothing is shuffled in memory, any position is found in O(1), and what has to
// be saved is a Cursor alone.
//
// The order depends on (seed, epoch, size) only. Rank r of w takes every r-th stretch of `batch_size`
// positions of it, so all world sizes walk through the same global order, and a run may resume with another
// world size.
//
// Errors: UsageError for options that cannot work, RefusedError for a cursor that lies outside the data set.
// Threads: Permutation is a value; a BatchPlan belongs to one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "holdfast/snapshot/cursor.h"

namespace holdfast::inline v1 {

// The order of one epoch as a keyed bijection of [0, size): a Feistel network over Philox on the next even
// number of bits, walking on while the value falls outside; four walks at worst on average. The network's
// functions are tables, drawn here once for a whole epoch (below 1 ms, at most 64 KiB): some 100 instructions
// a position. Beyond 16,777,216 samples they are drawn anew each time: 0.1-0.4 us a position.
class Permutation {
 public:
  // Requires size >= 1 and 0 <= epoch < 2^32.
  Permutation(std::uint64_t seed, std::int64_t epoch, std::int64_t size);

  // The sample at `position` of the epoch. Requires 0 <= position < size.
  std::int64_t operator()(std::int64_t position) const;
  std::int64_t epoch() const { return epoch_; }
  std::int64_t size() const { return static_cast<std::int64_t>(size_); }

 private:
  std::uint32_t drawn(std::uint32_t half, std::uint32_t round) const;

  std::uint64_t seed_;
  std::uint64_t size_;
  std::uint32_t epoch_;
  int half_bits_ = 1;
  std::uint64_t swap_ = 0;
  std::vector<std::uint16_t> table_;  // [round][half]; empty: too large for one
};

// Which part of every global batch this process takes.
struct Shard {
  std::int64_t rank = 0;
  std::int64_t world = 1;
};

struct PlanOptions {
  std::int64_t size = 0;          // samples of the data set
  std::int64_t batch_size = 128;  // samples of one batch on one rank
  std::int64_t accumulation = 1;  // batches of one optimizer update
  std::int64_t epochs = 0;        // in total, from epoch 0; 0 = endless
  bool drop_last = true;          // drop an update at the end of an epoch for which too few samples are left
  Shard shard{};
};

// One batch of one rank: positions [begin, end) of the epoch's order.
struct Slice {
  std::int64_t epoch = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  Cursor after;  // global: what has been applied once this batch has, on all ranks
  bool last_in_epoch = false;
  bool completes_update = true;  // false for all but the last batch of an accumulated update
};

// Cuts epochs into batches, starting anywhere. With `drop_last` every update of every epoch has the same
// number of samples; without it the last batch of an epoch is smaller, and a rank that gets nothing of it
// skips it. At the end of an epoch `after` is {epoch, size}, whatever was dropped.
class BatchPlan {
 public:
  // Throws UsageError when an epoch would hold no batch, RefusedError when `start` is not in the data set.
  explicit BatchPlan(const PlanOptions& options, Cursor start = {});

  // The next batch, crossing into the next epoch by itself; nullopt once all epochs have been handed out.
  std::optional<Slice> next();

  // Of an epoch from its beginning to its end, on this rank.
  std::int64_t batches_per_epoch() const;
  std::int64_t updates_per_epoch() const;

 private:
  PlanOptions options_;
  Cursor at_;
  std::int64_t micro_ = 0;  // batches already handed out of the current update
};

}  // namespace holdfast::inline v1
