// The keyed order for programs that use torch::data's DataLoader.
//
//   holdfast::EpochOrder order(data.size().value(), seed, {.batch_size = 64});
//   auto loader = torch::data::make_data_loader(data, holdfast::TorchSampler(order), options);
//   state.add("data", order);
//   for (auto epoch = order.epoch(); epoch < 3; ++epoch) {      // after resume()
//     for (auto& batch : *loader) { …; checkpointer.after_step({.applied = order.after(64)}); }
//   }
//
// Errors: UsageError for a cursor outside the epoch, and for another batch size than the order's.
// RefusedError (78) from the first batch after a resume with another batch size, if EpochOrderOptions has
// none. Threads: the iterating thread.
#pragma once

#include <torch/data/samplers/base.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "holdfast/data/sampler.h"
#include "holdfast/state/stateful.h"

namespace holdfast { inline namespace v1 {

// torch::data draws batches ahead of the training, so the sampler's position is not what was applied. The
// program reports that: after_step({.applied = order.after(n)}) with the n samples of the applied batch. The
// DataLoader must deliver in order, which is its default.
//
// A pass over the loader is an epoch. The first pass after a resume delivers the rest of the interrupted
// epoch. That rest is empty if the run stopped at the last batch of the epoch: the loop then takes no step,
// and does what it does after a pass.
struct EpochOrderOptions {
  bool shuffle = true;  // false: the order of the data set
  // Samples of one batch of the DataLoader. With it, resume() compares the recorded size before it claims the
  // run directory, and an override can accept a difference. 0: the first batch tells the size.
  std::int64_t batch_size = 0;
};

// The order, and how much of it was applied. Stateful. Must outlive the DataLoader that draws from it.
class EpochOrder {
 public:
  EpochOrder(std::size_t size, std::uint64_t seed, const EpochOrderOptions& options = {});

  std::size_t size() const { return static_cast<std::size_t>(size_); }
  // The epoch of the loader's next pass, where a loop over epochs continues. Ask between passes: during a
  // pass it returns the epoch after it.
  std::int64_t epoch() const;
  // The last applied cursor, which save() writes.
  Cursor cursor() const { return applied_; }
  // The cursor after `samples` more, in the epoch that is being delivered.
  Cursor after(std::int64_t samples) const;
  void applied(Cursor cursor);
  // Throws UsageError: drawn samples may still wait in the DataLoader, so an update must report `.applied`.
  void applied_all_delivered() const;

  void save(StateWriter& out) const;
  void load(const StateReader& in);

 private:
  friend class TorchSampler;
  void go_to(Cursor cursor);
  void check_batch_size(std::int64_t asked);

  std::int64_t size_;
  std::uint64_t seed_;
  EpochOrderOptions options_;
  std::int64_t batch_size_ = 0;  // given, recorded, or of the last draw; 0: unknown
  bool resumed_ = false;         // nothing was drawn since load()
  Cursor applied_;
  Cursor drawn_;
  std::optional<Permutation> order_;  // of the epoch that was drawn from last
  bool open_ = false;                 // the current pass has delivered: the next reset() opens a new epoch
};

class TorchSampler final : public torch::data::samplers::Sampler<> {
 public:
  explicit TorchSampler(EpochOrder& order) : order_(&order) {}

  // Opens the next epoch, or the rest of the resumed one. UsageError if `new_size` is not the order's.
  void reset(std::optional<std::size_t> new_size = std::nullopt) override;
  std::optional<std::vector<std::size_t>> next(std::size_t batch_size) override;

  // Saves the applied position with torch::serialize.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  EpochOrder* order_;
};

}}  // namespace holdfast::v1
