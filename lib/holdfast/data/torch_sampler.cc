#include "holdfast/data/torch_sampler.h"

#include <ATen/ops/tensor.h>
#include <torch/serialize/input-archive.h>
#include <torch/serialize/output-archive.h>

#include <algorithm>
#include <string>
#include <utility>

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 {
namespace {

std::int64_t batches(std::int64_t samples, std::int64_t of) { return (samples + of - 1) / of; }

}  // namespace

EpochOrder::EpochOrder(std::size_t size, std::uint64_t seed, const EpochOrderOptions& options)
    : size_(static_cast<std::int64_t>(size)),
      seed_(seed),
      options_(options),
      batch_size_(options.batch_size * options.shard.world) {
  if (size == 0) throw UsageError("the data set is empty: there is nothing to draw");
  if (options.batch_size < 0) {
    throw UsageError("the batch size must be at least 1, not " + std::to_string(options.batch_size));
  }
  const Shard& shard = options.shard;
  if (shard.world < 1 || shard.rank < 0 || shard.rank >= shard.world) {
    throw UsageError("there is no rank " + std::to_string(shard.rank) + " of " + std::to_string(shard.world));
  }
}

// An epoch that has been drawn from counts as begun.
std::int64_t EpochOrder::epoch() const { return drawn_.epoch + (open_ ? 1 : 0); }

EpochRange<EpochOrder> EpochOrder::epochs(std::int64_t end) {
  end_ = end;
  return {*this, end};
}

DataEnd EpochOrder::data_end() const {
  const std::int64_t left = size_ - applied_in_epoch();
  const bool is_last = applied_.epoch + 1 == end_;
  // The rest may be a smaller batch that comes, or one that drop_last leaves out.
  const bool is_dropped = options_.shard.world > 1 || (loader_ ? loader_->drop_last : drops_rest_ || is_last);
  const bool at_end = left == 0 || (left < batch_size_ && is_dropped);
  if (!open_ || !at_end) return DataEnd::none;
  return is_last ? DataEnd::run : DataEnd::epoch;
}

// A round is over. A stop ends the loop over epochs as well.
std::int64_t EpochOrder::next_round(std::int64_t round) {
  if (stopped_) return EpochRange<EpochOrder>::kOver;
  check_pass();
  const std::int64_t next = epoch();
  if (next == round) {
    throw UsageError("epoch " + std::to_string(round) +
                     " had no pass over the DataLoader: the loop over order.epochs() needs one each round");
  }
  end_round();
  return next;
}

std::int64_t EpochOrder::applied_in_epoch() const {
  return applied_.epoch == drawn_.epoch ? applied_.samples : 0;
}

std::int64_t EpochOrder::batch() const {
  return batch_size_ > 0 ? batches(applied_in_epoch(), batch_size_) : 0;
}

Cursor EpochOrder::after(std::int64_t samples) const { return {drawn_.epoch, applied_in_epoch() + samples}; }

// Since the last update. nullopt: unknown before the first update of a pass.
std::optional<std::int64_t> EpochOrder::delivered() const {
  if (!ahead_) return std::nullopt;
  return asked_ - *ahead_ - taken_;
}

Cursor EpochOrder::after_batches(std::int64_t count) const {
  const auto waiting = static_cast<std::int64_t>(waiting_.size());
  const std::int64_t most = std::min(waiting, delivered().value_or(waiting));
  if (count < 1 || count > most) {
    throw UsageError("after_batches(" + std::to_string(count) + ") in epoch " + std::to_string(drawn_.epoch) +
                     ": " + std::to_string(most) + " batches were delivered and not applied yet");
  }
  return {drawn_.epoch, waiting_[static_cast<std::size_t>(count - 1)]};
}

void EpochOrder::applied(Cursor cursor) {
  // Updates only go forward, and never beyond what was delivered. Workers may have drawn more.
  Cursor limit = drawn_;
  if (const auto count = delivered(); count && *count < static_cast<std::int64_t>(waiting_.size())) {
    limit.samples = *count > 0 ? waiting_[static_cast<std::size_t>(*count - 1)] : applied_in_epoch();
  }
  if (cursor < applied_ || cursor > limit) {
    throw UsageError("an update reports (epoch " + std::to_string(cursor.epoch) + ", sample " +
                     std::to_string(cursor.samples) + ") as applied, but the DataLoader stands at (epoch " +
                     std::to_string(limit.epoch) + ", sample " + std::to_string(limit.samples) + ")");
  }
  applied_ = cursor;
  if (!loader_) ahead_.reset();
  while (!waiting_.empty() && cursor >= Cursor{drawn_.epoch, waiting_.front()}) {
    waiting_.pop_front();
    ++taken_;
  }
  if (skips_) skip_now();
}

void EpochOrder::applied_all_delivered() {
  // A loop may take batches ahead of its updates; the first update of a pass shows how many.
  std::int64_t count = delivered().value_or(1);
  if (taken_ == 0) count = std::min<std::int64_t>(count, 1);
  if (count != 1 || waiting_.empty()) {
    throw UsageError("an update without `.applied` applies one batch, but in epoch " +
                     std::to_string(drawn_.epoch) + " the DataLoader delivered " +
                     std::to_string(waiting_.empty() ? 0 : count) + " since the last update, after " +
                     std::to_string(taken_) +
                     " applied ones: call after_step() once for each batch, or report "
                     "after_step({.applied = order.after_batches(n)})");
  }
  applied_ = {drawn_.epoch, waiting_.front()};
  waiting_.pop_front();
  ++taken_;
  if (taken_ == 1 || !loader_) ahead_ = asked_ - taken_;
  if (skips_) skip_now();
}

void EpochOrder::skip_rest() {
  if (!open_) return;
  skips_ = true;
  if (delivered() == 0) skip_now();  // no batch waits for its update
}

// As if everything were applied: the next pass belongs to the next epoch.
void EpochOrder::skip_now() {
  applied_ = drawn_ = {drawn_.epoch, size_};
  forget_batches();
}

// Less than a batch may be left: drop_last drops it, and the sampler is not told.
void EpochOrder::check_pass() {
  if (skips_) skip_now();  // no update came behind skip_rest()
  const std::int64_t left = size_ - applied_in_epoch();
  if (!open_ || left == 0 || left < batch_size_) return;
  throw UsageError("the pass over epoch " + std::to_string(drawn_.epoch) + " is over, but " +
                   std::to_string(batch()) + " of its " + std::to_string(batches(size_, batch_size_)) +
                   " batches were applied: add the order to the state, call after_step() once for each batch "
                   "or report .applied = order.after_batches(n), and call order.skip_rest() after leaving an "
                   "epoch early on purpose");
}

void EpochOrder::begin_pass(const std::optional<torch::data::FullDataLoaderOptions>& loader) {
  check_pass();
  forget_batches();
  // An empty rest of a resumed epoch has its pass too, because the loop over epochs counts it.
  // A new pass after an open one means the next epoch.
  if (open_) drawn_ = {drawn_.epoch + 1, 0};
  open_ = false;
  loader_ = loader;
  if (!loader) return;
  // Without workers it asks when a batch is wanted. Workers get their jobs before; the last question finds
  // nothing.
  const auto size = static_cast<std::int64_t>(loader->batch_size) * options_.shard.world;
  const std::int64_t left = size_ - drawn_.samples;
  const std::int64_t all = loader->drop_last || options_.shard.world > 1 ? left / size : batches(left, size);
  ahead_ = loader->workers == 0 ? 0 : std::min(static_cast<std::int64_t>(loader->max_jobs), all + 1);
}

// The loop over epochs is in the next one from here, also before its pass.
void EpochOrder::end_round() {
  forget_batches();
  drawn_ = {epoch(), 0};
  open_ = false;
}

void EpochOrder::forget_batches() {
  if (open_) drops_rest_ = applied_in_epoch() < size_;
  skips_ = false;
  waiting_.clear();
  asked_ = taken_ = 0;
  ahead_.reset();
}

void EpochOrder::go_to(Cursor cursor) {
  if (cursor.epoch < 0 || cursor.samples < 0 || cursor.samples > size_) {
    throw RefusedError("the data cursor (epoch " + std::to_string(cursor.epoch) + ", sample " +
                       std::to_string(cursor.samples) + ") lies outside a data set of " +
                       std::to_string(size_) + " samples: was the data set exchanged?");
  }
  applied_ = drawn_ = cursor;
  open_ = false;
  forget_batches();
}

// Only checked after a resume: a program may draw batches of different sizes from one order.
void EpochOrder::check_batch_size(std::int64_t asked) {
  const bool resumed = std::exchange(resumed_, false);
  const std::int64_t known = std::exchange(batch_size_, asked);
  if (known == 0 || known == asked) return;
  const std::string batches = "batches of " + std::to_string(asked) + " samples" +
                              (options_.shard.world > 1 ? " on all ranks together" : "");
  // An option names it for good, so another size is a mistake of the program.
  if (options_.batch_size > 0) {
    batch_size_ = known;
    throw UsageError("the DataLoader draws batches of " + std::to_string(asked / options_.shard.world) +
                     " samples, but EpochOrderOptions::batch_size says " +
                     std::to_string(options_.batch_size) + ": name the DataLoader's");
  }
  if (!resumed) return;
  batch_size_ = known;
  resumed_ = true;
  throw RefusedError(
      "refused: the DataLoader draws " + batches + ", and batch_size is " + std::to_string(known) +
      " in the checkpoint: use the recorded batch size. To go on with another one, name it in "
      "EpochOrderOptions::batch_size and \"batch_size\" in CheckpointerOptions::start.overrides");
}

void EpochOrder::save(StateWriter& out) const {
  out.option("size", size_);
  out.option("seed", static_cast<std::int64_t>(seed_));
  // Older checkpoints have neither option, and all of them are shuffled.
  if (!options_.shuffle) out.option("shuffle", false);
  if (options_.batch_size > 0) {
    out.option("batch_size", options_.batch_size * options_.shard.world);
  } else if (batch_size_ > 0) {
    // A value, not an option: this run did not choose it, but a resumed one must keep it.
    out.put("batch_size", batch_size_);
  }
  out.put("epoch", applied_.epoch);
  out.put("samples", applied_.samples);
}

void EpochOrder::load(const StateReader& in) {
  const bool recorded = in.has("batch_size");
  const std::int64_t batch_size = recorded ? in.get_int("batch_size") : 0;
  go_to({in.get_int("epoch"), in.get_int("samples")});
  resumed_ = true;
  if (options_.batch_size == 0) batch_size_ = batch_size;
}

TorchSampler::TorchSampler(TorchSampler sampler, const torch::data::DataLoaderOptions& loader)
    : TorchSampler(std::move(sampler)) {
  loader_.emplace(loader);
  if (loader_->workers > 0 && !loader_->enforce_ordering) {
    throw UsageError(
        "a DataLoader with enforce_ordering(false) and " + std::to_string(loader_->workers) +
        " workers delivers batches in any order, so that a resumed run would lose some and repeat others: "
        "leave enforce_ordering at its default (true), or take no workers");
  }
  if ((loader_->workers == 0) != (loader_->max_jobs == 0)) {
    throw UsageError("a DataLoader with workers(" + std::to_string(loader_->workers) + ") and max_jobs(" +
                     std::to_string(loader_->max_jobs) +
                     ") draws batches that it never delivers, or none: leave max_jobs out");
  }
  if (loader_->batch_size == 0) throw UsageError("the DataLoader's batch size must be at least 1, not 0");
}

void TorchSampler::reset(std::optional<std::size_t> new_size) {
  EpochOrder& order = *order_;
  if (new_size && *new_size != order.size()) {
    throw UsageError("the data set has " + std::to_string(*new_size) + " samples, the order was made for " +
                     std::to_string(order.size()));
  }
  order.over_ = order.stopped_;
  if (!order.over_) order.begin_pass(loader_);
}

std::optional<std::vector<std::size_t>> TorchSampler::next(std::size_t batch_size) {
  EpochOrder& order = *order_;
  if (order.over_) return std::nullopt;
  const Shard& shard = order.options_.shard;
  const auto own = static_cast<std::int64_t>(batch_size);
  order.check_batch_size(own * shard.world);
  order.open_ = true;
  const std::int64_t left = order.size_ - order.drawn_.samples;
  const std::int64_t count = std::min(left, own);
  const bool dropped = loader_ && loader_->drop_last && count < own;
  // Counted even if nothing is left: the DataLoader asks once more at the end.
  ++order.asked_;
  if (count == 0 || (shard.world > 1 && left < own * shard.world)) return std::nullopt;
  const bool shuffle = order.options_.shuffle;
  if (shuffle && (!order.order_ || order.order_->epoch() != order.drawn_.epoch)) {
    order.order_.emplace(order.seed_, order.drawn_.epoch, order.size_);
  }
  std::vector<std::size_t> samples;
  samples.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t position = order.drawn_.samples + shard.rank * own + i;
    samples.push_back(static_cast<std::size_t>(shuffle ? (*order.order_)(position) : position));
  }
  order.drawn_.samples += std::min(left, own * shard.world);
  if (!dropped) order.waiting_.push_back(order.drawn_.samples);
  return samples;
}

void TorchSampler::save(torch::serialize::OutputArchive& archive) const {
  const Cursor cursor = order_->cursor();
  archive.write("cursor", at::tensor({cursor.epoch, cursor.samples}), /*is_buffer=*/true);
}

void TorchSampler::load(torch::serialize::InputArchive& archive) {
  at::Tensor cursor = at::tensor({std::int64_t{0}, std::int64_t{0}});
  archive.read("cursor", cursor, /*is_buffer=*/true);
  order_->go_to({cursor[0].item<std::int64_t>(), cursor[1].item<std::int64_t>()});
}

}}  // namespace holdfast::v0_2
