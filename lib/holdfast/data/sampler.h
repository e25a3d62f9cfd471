// Decides which samples make a batch: a keyed permutation is the order, and a plan cuts it into batches. Both
// are arithmetic: nothing is shuffled in memory, any position costs O(1), and only a Cursor must be saved.
//
// The order depends on (seed, epoch, size) only. Of each w stretches of `batch_size` positions in a row, rank
// r of w takes stretch r. So every number of ranks walks through the same global order, and a run may resume
// with another number.
//
// Errors: UsageError for options that cannot work, RefusedError for a cursor outside the data set. Threads:
// Permutation is a value; a BatchPlan belongs to one thread at a time.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "holdfast/base/export.h"
#include "holdfast/snapshot/cursor.h"

namespace holdfast { inline namespace v0_2 {

// The order of one epoch: a keyed bijection of [0, size). It is a Feistel network over Philox on the next
// even number of bits, repeated while the value falls outside (at worst four times on average). Its round
// functions are tables, drawn here once per epoch (below 1 ms, at most 64 KiB); a position costs about 100
// instructions. Above 16,777,216 samples they are drawn for each position: 0.1-0.4 us.
class HOLDFAST_EXPORT Permutation {
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
  std::vector<std::uint16_t> table_;  // [round][half]; empty if it would be too large
};

struct PlanOptions {
  std::int64_t size = 0;          // samples of the data set
  std::int64_t batch_size = 128;  // samples of one batch on one rank
  std::int64_t accumulation = 1;  // batches of one optimizer update
  std::int64_t epochs = 0;        // in total, from epoch 0; 0: endless
  bool drop_last = true;          // drop the last update of an epoch if too few samples are left for it
  Shard shard{};
};

// One batch of one rank: positions [begin, end) of the epoch's order.
struct Slice {
  std::int64_t epoch = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  Cursor after;  // global: applied once all ranks have applied this batch
  bool last_in_epoch = false;
  bool completes_update = true;  // false for all but the last batch of an accumulated update
};

// Cuts epochs into batches, from any cursor. With `drop_last` every update has the same number of samples.
// Without it the last batch of an epoch is smaller, and a rank without samples in it skips it. At the end of
// an epoch `after` is {epoch, size}, whatever was dropped.
class HOLDFAST_EXPORT BatchPlan {
 public:
  // UsageError if an epoch would have no batch. RefusedError if `start` is not in the data set.
  explicit BatchPlan(const PlanOptions& options, Cursor start = {});

  // The next batch, across epochs; nullopt after the last epoch.
  std::optional<Slice> next();

  // Batches and updates of a whole epoch on this rank.
  std::int64_t batches_per_epoch() const;
  std::int64_t updates_per_epoch() const;

 private:
  PlanOptions options_;
  Cursor at_;
  std::int64_t micro_ = 0;  // batches of the current update that were handed out
};

// The epochs of a run for a range-for: `for (std::int64_t epoch : loader.epochs())`. Asks `Source` where the
// run continues when the loop begins, and for the next epoch when a round ends.
template <class Source>
class EpochRange {
 public:
  static constexpr std::int64_t kOver = std::numeric_limits<std::int64_t>::max();

  class Iterator {
   public:
    Iterator(Source& source, std::int64_t epoch) : source_(&source), epoch_(epoch) {}
    std::int64_t operator*() const { return epoch_; }
    Iterator& operator++() {
      epoch_ = source_->next_round(epoch_);
      return *this;
    }
    bool operator!=(const Iterator& end) const { return epoch_ < end.epoch_; }

   private:
    Source* source_;
    std::int64_t epoch_;
  };

  EpochRange(Source& source, std::int64_t end) : source_(&source), end_(end) {}
  Iterator begin() const { return {*source_, source_->first_round()}; }
  Iterator end() const { return {*source_, end_}; }

 private:
  Source* source_;
  std::int64_t end_;
};

}}  // namespace holdfast::v0_2
