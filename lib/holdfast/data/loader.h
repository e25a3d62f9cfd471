// Batches in a fixed order, made by worker threads ahead of time, resumable to the sample.
//
//   holdfast::Loader loader(data, {.batch_size = 128, .epochs = 30, .seed = 1, .workers = 2});
//   state.add("data", loader);
//   while (auto batch = loader.next()) { ... }
//
// The sequence of batches depends on the data set, the seed, the batch size (of all ranks together),
// `shuffle`, `drop_last` and `accumulation`, and on nothing else: not on workers, prefetch or where a run was
// interrupted.
//
// Recorded as "batch_size" and compared on resume are the samples of one update, of all ranks and all passes:
// how they are divided (global_batch.h) is free to change. Another `accumulation`, like another number of
// ranks, withdraws the bit-exact promise aloud.
//
// What is saved is the cursor that was last *applied*, never one that was only prefetched or delivered. After
// an optimizer update the training state reports it: applied(batch->cursor), or, when the user names none,
// applied_all_delivered(). load() continues right there; batches delivered since are made again.
//
// Errors: next() throws what get(), get_batch() or finish_batch() threw (Error kept as it is, anything else
// as Error naming the batch and the sample), and goes on throwing it until load() or restart(). The
// destructor waits for the samples being made, at most one batch a worker. Threads: all methods on the
// training thread, save() and cursor() included. Workers are plain threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/data/dataset.h"
#include "holdfast/data/sampler.h"
#include "holdfast/snapshot/cursor.h"
#include "holdfast/state/stateful.h"

namespace holdfast::inline v1 {

struct LoaderOptions {
  std::int64_t batch_size = 128;  // samples of one batch on one rank
  std::int64_t epochs = 0;        // in total, resumed ones included; 0 = endless. Free to change on resume.
  std::uint64_t seed = 0;         // keys the order and the augmentation
  bool shuffle = true;            // false: the data set's own order
  // false: the last batch of an epoch may be smaller, and of several ranks some may have one less than others
  // (evaluation). Ranks that train together need true, or a size that whole updates use up.
  bool drop_last = true;
  std::int64_t accumulation = 1;  // batches of one optimizer update; an epoch holds whole updates only
  int workers = 1;                // threads; 0 makes each batch inside next(). Free to change on resume.
  int prefetch = 0;               // batches held ready at most, each costs its memory; 0 = 2 per worker
  bool pin_memory = false;        // page-locked inputs for asynchronous copies to a CUDA device
  Shard shard{};                  // this process' part of each global batch
};

struct Batch {
  at::Tensor inputs;               // the first field
  at::Tensor targets;              // the last field
  std::vector<at::Tensor> fields;  // all of them
  Cursor cursor;                   // after this batch: pass it to after_step({.applied = batch->cursor})
  std::int64_t epoch = 0;          // from 0
  bool last_in_epoch = false;
  bool completes_update = true;  // with accumulation: step the optimizer after this one
};

class Loader {
 public:
  // The data set moves into the loader. Workers start with the first next(). Throws UsageError for options
  // that cannot work: an epoch without a batch, a shard outside its world.
  template <Dataset D>
  Loader(D data, const LoaderOptions& options)
      : Loader(std::make_unique<internal::BatchMakerOf<D>>(std::move(data)), options) {}
  Loader(Loader&&) noexcept;
  Loader& operator=(Loader&&) noexcept;
  ~Loader();

  // The next batch; crosses into the next epoch by itself. nullopt once all `epochs` have been delivered.
  std::optional<Batch> next();

  // An update has applied everything up to `cursor`. UsageError when that was never delivered.
  void applied(Cursor cursor);
  // An update has applied every batch delivered so far. UsageError unless those are exactly the batches of
  // one update (or none): two next() between two updates need `accumulation`, or .applied.
  void applied_all_delivered();

  Cursor cursor() const;     // the last applied one: what save() writes
  Cursor delivered() const;  // after the batch that next() returned last

  // Go back to the beginning of epoch 0 (evaluation, which passes over the data again and again).
  void restart();

  std::int64_t size() const;               // samples of the data set
  std::int64_t batches_per_epoch() const;  // of this rank
  std::int64_t updates_per_epoch() const;
  const std::string& fingerprint() const;
  const LoaderOptions& options() const;

  void save(StateWriter& out) const;
  void load(const StateReader& in);

 private:
  Loader(std::unique_ptr<internal::BatchMaker> maker, const LoaderOptions& options);
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace holdfast::inline v1
