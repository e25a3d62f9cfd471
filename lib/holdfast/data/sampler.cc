#include "holdfast/data/sampler.h"

#include <algorithm>
#include <string>

#include "holdfast/base/error.h"
#include "holdfast/data/random.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// Limit for tables: 16,777,216 samples need 33,000 draws and 64 KiB per epoch.
constexpr int kTableBits = 12;

// Eight rounds are enough if a half has many values. For sets of up to 64 samples, where all orders can be
// counted, a chi-square test sees a bias with eight rounds.
constexpr std::uint32_t rounds_for(int half_bits) { return half_bits < 4 ? 16 : 8; }

constexpr Random4 shuffle_bits(std::uint64_t seed, std::uint32_t half, std::uint32_t epoch,
                               std::uint32_t round) {
  return philox(seed, {half, epoch, static_cast<std::uint32_t>(RandomPurpose::shuffle), round});
}

std::int64_t update_samples(const PlanOptions& options) {
  return options.batch_size * options.shard.world * options.accumulation;
}

void check(const PlanOptions& options) {
  const auto require = [](bool good, const std::string& message) {
    if (!good) throw UsageError(message);
  };
  const Shard& shard = options.shard;
  require(options.size >= 1, "the data set is empty: there is nothing to load");
  require(options.batch_size >= 1,
          "the batch size must be at least 1, not " + std::to_string(options.batch_size));
  require(options.accumulation >= 1,
          "accumulation must be at least 1 batch, not " + std::to_string(options.accumulation));
  require(options.epochs >= 0, "the number of epochs must not be negative (0 is endless)");
  require(shard.world >= 1 && shard.rank >= 0 && shard.rank < shard.world,
          "shard " + std::to_string(shard.rank) + " of " + std::to_string(shard.world) + " does not exist");
  std::int64_t update = 0;
  require(!__builtin_mul_overflow(options.batch_size, std::int64_t{shard.world}, &update) &&
              !__builtin_mul_overflow(update, options.accumulation, &update),
          "batch size " + std::to_string(options.batch_size) + " x accumulation " +
              std::to_string(options.accumulation) + " is more samples than there are numbers");
  require(!options.drop_last || update_samples(options) <= options.size,
          "an update takes " + std::to_string(update_samples(options)) + " samples (batch size " +
              std::to_string(options.batch_size) + " x accumulation " + std::to_string(options.accumulation) +
              " x world " + std::to_string(shard.world) + ") but the data set has " +
              std::to_string(options.size) + ": choose a smaller batch size");
  // Its plan would go from epoch to epoch for ever.
  require(options.drop_last || options.epochs > 0 || shard.rank * options.batch_size < options.size,
          "rank " + std::to_string(shard.rank) + " of " + std::to_string(shard.world) +
              " has no sample in any epoch: the data set has " + std::to_string(options.size) +
              ", and the ranks before it take " + std::to_string(shard.rank * options.batch_size) +
              ": choose a smaller batch size");
}

}  // namespace

// The epoch is a part of the key, so each epoch has an order of its own.
Permutation::Permutation(std::uint64_t seed, std::int64_t epoch, std::int64_t size)
    : seed_(seed), size_(static_cast<std::uint64_t>(size)), epoch_(static_cast<std::uint32_t>(epoch)) {
  // The smallest even number of bits that holds the size: a Feistel network needs two equal halves.
  while (half_bits_ < 31 && (std::uint64_t{1} << (2 * half_bits_)) < size_) ++half_bits_;
  // A Feistel network is an even permutation. One keyed transposition makes odd permutations equally likely.
  swap_ = shuffle_bits(seed_, 0, epoch_, ~0U)[0] & 1;
  if (half_bits_ > kTableBits) return;
  const std::uint32_t rounds = rounds_for(half_bits_);
  table_.reserve(std::size_t{rounds} << half_bits_);
  for (std::uint32_t round = 0; round < rounds; ++round) {
    for (std::uint32_t half = 0; half < std::uint32_t{1} << half_bits_; ++half) {
      table_.push_back(static_cast<std::uint16_t>(drawn(half, round)));
    }
  }
}

std::uint32_t Permutation::drawn(std::uint32_t half, std::uint32_t round) const {
  return shuffle_bits(seed_, half, epoch_, round)[0] &
         static_cast<std::uint32_t>((std::uint64_t{1} << half_bits_) - 1);
}

std::int64_t Permutation::operator()(std::int64_t position) const {
  const auto mask = static_cast<std::uint32_t>((std::uint64_t{1} << half_bits_) - 1);
  const std::uint32_t rounds = rounds_for(half_bits_);
  // Cycle walking: values beyond the size are sent through again. The domain is below four times the size.
  auto value = static_cast<std::uint64_t>(position);
  do {
    auto left = static_cast<std::uint32_t>(value >> half_bits_);
    auto right = static_cast<std::uint32_t>(value) & mask;
    // Each round is its own inverse with the halves exchanged, so the whole is a permutation.
    for (std::uint32_t round = 0; round < rounds; ++round) {
      const std::uint32_t mixed =
          left ^ (table_.empty() ? drawn(right, round) : table_[std::size_t{round} << half_bits_ | right]);
      left = right;
      right = mixed;
    }
    value = std::uint64_t{left} << half_bits_ | right;
    // 0 and 1 always exist, unless there is one sample; the loop then walks on.
    if (value < 2) value ^= swap_;
  } while (value >= size_);
  return static_cast<std::int64_t>(value);
}

BatchPlan::BatchPlan(const PlanOptions& options, Cursor start) : options_(options), at_(start) {
  check(options);
  if (start.epoch < 0 || start.samples < 0 || start.samples > options.size) {
    throw RefusedError("the data cursor (epoch " + std::to_string(start.epoch) + ", sample " +
                       std::to_string(start.samples) + ") lies outside a data set of " +
                       std::to_string(options.size) + " samples: was the data set exchanged?");
  }
}

std::optional<Slice> BatchPlan::next() {
  const std::int64_t global = options_.batch_size * options_.shard.world;
  for (;;) {
    const std::int64_t left = options_.size - at_.samples;
    // An epoch ends where not even one update is left, or nothing.
    if (micro_ == 0 && left < (options_.drop_last ? update_samples(options_) : 1)) {
      at_ = {at_.epoch + 1, 0};
      continue;
    }
    if (options_.epochs > 0 && at_.epoch >= options_.epochs) return std::nullopt;

    const std::int64_t first = at_.samples;
    const std::int64_t limit = std::min(options_.size, first + global);
    const bool update_full = ++micro_ == options_.accumulation;
    const std::int64_t remaining = options_.size - limit;
    Slice slice;
    slice.epoch = at_.epoch;
    // This rank's slice of the global batch; empty if the last one is short.
    slice.begin = std::min(limit, first + options_.shard.rank * options_.batch_size);
    slice.end = std::min(limit, slice.begin + options_.batch_size);
    slice.last_in_epoch =
        remaining == 0 || (update_full && options_.drop_last && remaining < update_samples(options_));
    slice.completes_update = update_full || slice.last_in_epoch;
    if (slice.completes_update) micro_ = 0;
    // Dropped samples count as seen: the next epoch begins at 0 on every rank.
    at_.samples = slice.last_in_epoch ? options_.size : limit;
    slice.after = at_;
    // A rank without samples in a short last batch goes on to the next epoch.
    if (slice.begin < slice.end) return slice;
  }
}

std::int64_t BatchPlan::updates_per_epoch() const {
  const std::int64_t update = update_samples(options_);
  return options_.drop_last ? options_.size / update : (options_.size + update - 1) / update;
}

std::int64_t BatchPlan::batches_per_epoch() const {
  // All ranks make as many batches if short ones are dropped.
  if (options_.drop_last) return updates_per_epoch() * options_.accumulation;
  const std::int64_t global = options_.batch_size * options_.shard.world;
  const std::int64_t rest = options_.size % global;
  return options_.size / global + (rest > options_.shard.rank * options_.batch_size ? 1 : 0);
}

}}  // namespace holdfast::v0_2
