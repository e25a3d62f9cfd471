// The keyed order for programs that keep torch::data's own DataLoader.
//
//   holdfast::EpochOrder order(data.size().value(), seed);
//   auto loader = torch::data::make_data_loader(data, holdfast::TorchSampler(order), options);
//   state.add("data", order);
//
// torch::data draws batches ahead of the training, so the sampler's own position is not what has been
// applied. The program reports it: after_step({.applied = order.after(n)}), n being the samples of the batch
// just applied. The DataLoader must deliver in order (its default). A pass of the loader is an epoch; the
// first pass after a resume starts where the run stopped.
//
// Errors: UsageError for a cursor outside the epoch. Threads: TorchSampler is used where torch::data uses it,
// on the thread that iterates; EpochOrder on the same thread.
#pragma once

#include <torch/data/samplers/base.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "holdfast/data/sampler.h"
#include "holdfast/state/stateful.h"

namespace holdfast::inline v1 {

// The order, and how much of it has been applied. Stateful. Outlives the DataLoader that draws from it.
class EpochOrder {
 public:
  EpochOrder(std::size_t size, std::uint64_t seed);

  std::size_t size() const { return static_cast<std::size_t>(size_); }
  Cursor cursor() const { return applied_; }
  // The cursor once `samples` more have been applied, in the epoch that is being delivered.
  Cursor after(std::int64_t samples) const;
  void applied(Cursor cursor);
  // UsageError: what has been drawn may still wait in the DataLoader, so an update must report `.applied`.
  void applied_all_delivered() const;

  void save(StateWriter& out) const;
  void load(const StateReader& in);

 private:
  friend class TorchSampler;
  void go_to(Cursor cursor);

  std::int64_t size_;
  std::uint64_t seed_;
  Cursor applied_;
  Cursor drawn_;
  std::optional<Permutation> order_;  // of the epoch that was drawn from last
  bool open_ = false;  // the current pass has drawn something: the next reset() opens a new epoch
};

class TorchSampler final : public torch::data::samplers::Sampler<> {
 public:
  explicit TorchSampler(EpochOrder& order) : order_(&order) {}

  // Opens the next epoch, or the resumed one. UsageError when `new_size` is not the order's.
  void reset(std::optional<std::size_t> new_size = std::nullopt) override;
  std::optional<std::vector<std::size_t>> next(std::size_t batch_size) override;

  // torch::serialize's way to save the applied position.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  EpochOrder* order_;
};

}  // namespace holdfast::inline v1
