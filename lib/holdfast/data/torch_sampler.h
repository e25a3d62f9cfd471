// The keyed order for programs that use torch::data's DataLoader.
//
//   holdfast::EpochOrder order(data.size().value(), seed);
//   auto loader = torch::data::make_data_loader(data, holdfast::TorchSampler(order), options);
//   state.add("data", order);
//   checkpointer.resume();
//   for (std::int64_t epoch : order.epochs(30)) {
//     for (auto& batch : *loader) …   // each batch ends with after_step() (docs/porting.md)
//
// Errors: UsageError from make_data_loader() for options that lose the order, where updates and batches do
// not fit together (see EpochOrder), and for another batch size than the order's. RefusedError (78) from the
// first batch after a resume with another one, if the order has none. Threads: the iterating thread.
#pragma once

#include <torch/data/dataloader/stateless.h>
#include <torch/data/dataloader_options.h>
#include <torch/data/samplers/base.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "holdfast/base/export.h"
#include "holdfast/data/sampler.h"
#include "holdfast/state/stateful.h"

namespace holdfast { inline namespace v0_2 {

// A pass over the loader is an epoch. The first pass after a resume delivers the rest of the interrupted
// epoch. That rest is empty if the run stopped at the last batch of the epoch: the loop then takes no step,
// and does what it does after a pass. So that work is done again if the run ended between it and the next
// saved step.
struct EpochOrderOptions {
  bool shuffle = true;  // false: the order of the data set
  // This process' part of each global batch. With several ranks an epoch ends before a batch that would not
  // be whole on all of them.
  Shard shard{};
  // Samples of one batch of the DataLoader. With it, resume() compares the recorded size before it claims the
  // run directory, and an override can accept a difference. 0: the first batch tells the size.
  std::int64_t batch_size = 0;
};

// The order, and how much of it was applied. Stateful. Must outlive the DataLoader that draws from it.
//
// torch::data draws batches ahead of the training, so the sampler's position is not what was applied. An
// update that does not report `.applied` applies one batch, the next one in order. Batches may be drawn by
// workers, and a dropped rest (drop_last) is fine. make_data_loader() refuses enforce_ordering(false) with
// workers: then nobody knows which batch came. A loop with other updates says so:
// - Several batches an update, n = 1 if the loop takes the next one ahead: after_step({.applied =
//   order.after_batches(n)}).
// - A batch without an update (`continue`): call after_step() for it too, or count it in after_batches().
// - Leaving an epoch early on purpose: skip_rest() before the after_step() of the last batch that is wanted.
// A count that does not fit is a UsageError: from after_batches() for more batches than were delivered, from
// after_step() if another number than one was delivered since the last update, and at the end of a pass if
// batches of it were not applied.
class HOLDFAST_EXPORT EpochOrder {
 public:
  EpochOrder(std::size_t size, std::uint64_t seed, const EpochOrderOptions& options = {});

  std::size_t size() const { return static_cast<std::size_t>(size_); }
  const Shard& shard() const { return options_.shard; }
  // For a range-for: the epochs from epoch() to `end` - 1. Each round needs one pass over the loader. Call it
  // after resume(). UsageError from the step to the next epoch, see above.
  EpochRange<EpochOrder> epochs(std::int64_t end);
  // The epoch of the loader's next pass, where a loop over epochs continues. Ask between passes: during a
  // pass it returns the epoch after it.
  std::int64_t epoch() const;
  // The batches of the current epoch that were applied, also before a resume. Before after_step() this is the
  // index of the batch in hand, from 0. 0 while the size of a batch is unknown. After a pass these are its
  // batches, until epochs() goes on or the next pass begins.
  std::int64_t batch() const;
  // The last applied cursor, which save() writes.
  Cursor cursor() const { return applied_; }
  // What ended with the last applied batch: an epoch, or the last one of epochs(). A rest that drop_last
  // leaves out is known after the first pass.
  DataEnd data_end() const;
  // The cursor after `count` more batches. UsageError if fewer were delivered and not applied.
  Cursor after_batches(std::int64_t count) const;
  // The cursor after `samples` more of all ranks together, in the epoch that is being delivered.
  Cursor after(std::int64_t samples) const;
  void applied(Cursor cursor);
  // An update without `.applied`: one more batch.
  void applied_all_delivered();
  // after_step() said stop: epochs() ends with this round, and further passes deliver nothing. So a loop that
  // leaves only the pass (`break`) comes to its end.
  void told_to_stop() { stopped_ = true; }
  // The rest of this epoch is not wanted: after the batch in hand the pass is over. Call it before that
  // batch's after_step(), so that its checkpoint says so; behind it, a run that resumes there trains the next
  // batch. For loaders without workers: with workers, torch::data itself refuses a new pass while batches of
  // the last one wait.
  void skip_rest();

  void save(StateWriter& out) const;
  void load(const StateReader& in);

 private:
  friend class TorchSampler;
  friend class EpochRange<EpochOrder>;
  std::int64_t first_round() const { return epoch(); }
  std::int64_t next_round(std::int64_t round);
  void go_to(Cursor cursor);
  void begin_pass(const std::optional<torch::data::FullDataLoaderOptions>& loader);
  void end_round();
  void forget_batches();
  void skip_now();
  std::optional<std::int64_t> delivered() const;
  std::int64_t applied_in_epoch() const;
  void check_batch_size(std::int64_t asked);
  void check_pass();

  std::int64_t size_;
  std::uint64_t seed_;
  EpochOrderOptions options_;
  std::int64_t batch_size_ = 0;  // of all ranks together; given, recorded, or of the last draw; 0: unknown
  bool resumed_ = false;         // nothing was drawn since load()
  Cursor applied_;
  Cursor drawn_;
  std::optional<Permutation> order_;  // of the epoch that was drawn from last
  bool stopped_ = false;              // told_to_stop()
  bool over_ = false;                 // a pass began after that
  std::int64_t end_ = 0;              // of epochs(); 0: not asked
  bool skips_ = false;                // skip_rest(), with the next update
  bool drops_rest_ = false;           // a pass has ended before its last, smaller batch
  bool open_ = false;                 // the current pass has delivered: the next reset() opens a new epoch
  std::deque<std::int64_t> waiting_;  // where each drawn batch ends that was not applied
  // The DataLoader asks for `ahead_` batches before it delivers one, and then for one more with each batch.
  // So asked_ - ahead_ batches were delivered. Its options tell `ahead_`. If somebody else draws (a sampler
  // around TorchSampler), the first update of a pass does.
  std::optional<torch::data::FullDataLoaderOptions> loader_;
  std::int64_t asked_ = 0;
  std::int64_t taken_ = 0;  // batches of this pass that were applied
  std::optional<std::int64_t> ahead_;
};

class HOLDFAST_EXPORT TorchSampler : public torch::data::samplers::Sampler<> {
 public:
  explicit TorchSampler(EpochOrder& order) : order_(&order) {}
  // For make_data_loader(): the sampler of a DataLoader with these options. UsageError, see EpochOrder.
  TorchSampler(TorchSampler sampler, const torch::data::DataLoaderOptions& loader);

  // Opens the next epoch, or the rest of the resumed one. UsageError if `new_size` is not the order's, or if
  // batches of the last pass were not applied.
  void reset(std::optional<std::size_t> new_size = std::nullopt) override;
  std::optional<std::vector<std::size_t>> next(std::size_t batch_size) override;

  // Saves the applied position with torch::serialize.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  EpochOrder* order_;
  std::optional<torch::data::FullDataLoaderOptions> loader_;
};

namespace internal {
// A TorchSampler that knows its DataLoader.
struct HOLDFAST_EXPORT LoadersSampler final : TorchSampler {
  using TorchSampler::TorchSampler;
};
}  // namespace internal

}}  // namespace holdfast::v0_2

// The DataLoader that make_data_loader() makes of a TorchSampler: torch's own. The sampler sees its options.
template <class Dataset>
class torch::data::StatelessDataLoader<Dataset, holdfast::TorchSampler>
    : public torch::data::StatelessDataLoader<Dataset, holdfast::internal::LoadersSampler> {
 public:
  StatelessDataLoader(Dataset dataset, holdfast::TorchSampler sampler, DataLoaderOptions options)
      : StatelessDataLoader<Dataset, holdfast::internal::LoadersSampler>(
            std::move(dataset), holdfast::internal::LoadersSampler(std::move(sampler), options), options) {}
};
