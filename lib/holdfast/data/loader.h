// Delivers batches in a fixed order. Worker threads make them ahead of time; a resume continues at the exact
// sample.
//
//   holdfast::Loader loader(data, {.batch_size = 128, .epochs = 30, .seed = 1, .workers = 2});
//   state.add("data", loader);
//   while (auto batch = loader.next()) { ... }    // or, with work after each epoch:
//   for (std::int64_t epoch : loader.epochs()) {  while (auto batch = loader.next()) { ... }  evaluate();  }
//
// The sequence depends only on the data set, the seed, the global batch size, `shuffle`, `drop_last` and
// `accumulation`. Errors: next() throws what the data set threw (an Error unchanged, others as Error with
// batch and sample). It throws again until load() or restart(). The destructor waits for the samples being
// made, at most one batch per worker. Threads: all methods on the training thread, also save() and cursor().
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/base/export.h"
#include "holdfast/data/dataset.h"
#include "holdfast/data/sampler.h"
#include "holdfast/snapshot/cursor.h"
#include "holdfast/state/stateful.h"

namespace holdfast { inline namespace v0_2 {

// Resume compares "batch_size": the samples of one update, of all ranks and passes. Their division
// (global_batch.h) may change. Another `accumulation` or number of ranks withdraws the bit-exact promise,
// which is logged.
//
// save() writes the cursor that was *applied* last, never one that was only prefetched or delivered. After an
// optimizer update the training state calls applied(batch->cursor), or applied_all_delivered() without a
// reported cursor. load() continues there; batches that were delivered since are made again.
struct LoaderOptions {
  std::int64_t batch_size = 128;  // samples of one batch on one rank
  // Epochs in total, including those before a resume. 0: endless. Free to change on resume.
  std::int64_t epochs = 0;
  // Key of the order and of the augmentation.
  std::uint64_t seed = 0;
  // False: the order of the data set.
  bool shuffle = true;
  // False: the last batch of an epoch may be smaller, and some ranks may have one batch less (evaluation).
  // Ranks that train together, and a Step with accumulation, need true, or a size that is a multiple of the
  // update. Costs up to one update of samples per epoch.
  bool drop_last = true;
  std::int64_t accumulation = 1;  // batches of one optimizer update; an epoch has whole updates only
  // Threads. 0: next() makes each batch itself. Free to change on resume.
  int workers = 1;
  // Most batches that wait for delivery; each costs its memory. 0: two per worker.
  int prefetch = 0;
  // Page-locks inputs, for asynchronous copies to a CUDA device. Costs memory that cannot be swapped.
  bool pin_memory = false;
  Shard shard{};  // this process' part of each global batch
};

struct Batch {
  at::Tensor inputs;               // the first field
  at::Tensor targets;              // the last field
  std::vector<at::Tensor> fields;  // all fields
  Cursor cursor;                   // after this batch: pass it to after_step({.applied = batch->cursor})
  std::int64_t epoch = 0;          // from 0
  bool last_in_epoch = false;
  bool completes_update = true;  // false until the last batch of an accumulated update
};

class HOLDFAST_EXPORT Loader {
 public:
  // Moves the data set into the loader. Workers start at the first next(). UsageError for options that cannot
  // work: an epoch without a batch, a shard outside its world.
  template <Dataset D>
  Loader(D data, const LoaderOptions& options)
      : Loader(std::make_unique<internal::BatchMakerOf<D>>(std::move(data)), options) {}
  Loader(Loader&&) noexcept;
  Loader& operator=(Loader&&) noexcept;
  ~Loader();

  // The next batch, across epochs. nullopt after `epochs` epochs, and in a loop over epochs() at the end of
  // each.
  std::optional<Batch> next();
  // For a range-for: the epochs from where the run continues. Call it after resume(). A run that resumes from
  // an epoch's last batch gets that epoch with no batch, because what the loop does after an epoch is not in
  // that checkpoint. after_step()'s stop ends the loop too. UsageError where a round was left before its last
  // batch.
  EpochRange<Loader> epochs() {
    return {*this, options().epochs > 0 ? options().epochs : EpochRange<Loader>::kOver};
  }

  // An update has applied everything up to `cursor`. UsageError if that was never delivered.
  void applied(Cursor cursor);
  // An update has applied every delivered batch. UsageError unless those are the batches of exactly one
  // update, or none: two calls of next() between updates need `accumulation` or .applied.
  void applied_all_delivered();

  Cursor cursor() const;  // the last applied cursor, which save() writes
  // What ended with the last applied batch: an epoch, or the last of `epochs`.
  DataEnd data_end() const;
  void told_to_stop();  // after_step() said stop: epochs() ends with this round

  // Goes back to the start of epoch 0, for an evaluation that passes over the data again and again.
  void restart();

  std::int64_t size() const;               // samples of the data set
  std::int64_t batches_per_epoch() const;  // of this rank
  std::int64_t updates_per_epoch() const;
  const std::string& fingerprint() const;
  const LoaderOptions& options() const;
  const Shard& shard() const { return options().shard; }

  void save(StateWriter& out) const;
  void load(const StateReader& in);

 private:
  Loader(std::unique_ptr<internal::BatchMaker> maker, const LoaderOptions& options);
  friend class EpochRange<Loader>;
  std::int64_t first_round();
  std::int64_t next_round(std::int64_t round);
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}}  // namespace holdfast::v0_2
