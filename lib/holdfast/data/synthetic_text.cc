#include "holdfast/data/synthetic_text.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>

#include <numeric>
#include <utility>

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr std::uint32_t kTopics = 64;
constexpr std::int64_t kGolden = 0x9E3779B9;  // 2^32 / golden ratio: spreads neighbours
constexpr std::int64_t kLow = 0xFFFFFFFF;
// Columns of the tensor that get_batch makes.
constexpr std::int64_t kFirst = 0, kSecond = 1, kPlaces = 2, kLabel = 3, kTraits = 4;

// A 32-bit hash (lowbias32 of C. Wellons) in 64-bit integers, which every device has. A product keeps its low
// bits.
at::Tensor hashed(at::Tensor x) {
  x = x.bitwise_and(kLow);
  x.bitwise_xor_(x.bitwise_right_shift(16)).mul_(0x7feb352d).bitwise_and_(kLow);
  x.bitwise_xor_(x.bitwise_right_shift(15)).mul_(0x846ca68b).bitwise_and_(kLow);
  return x.bitwise_xor_(x.bitwise_right_shift(16));
}

std::uint32_t topic_key(std::uint64_t seed, std::uint32_t topic) {
  return philox(seed, {topic, 0, static_cast<std::uint32_t>(RandomPurpose::topic), 0})[0];
}

}  // namespace

SyntheticText::SyntheticText(const SyntheticTextOptions& options) : options_(options) {
  if (options.predictions < 1 || options.predictions >= options.tokens) {
    throw UsageError("synthetic text: of " + std::to_string(options.tokens) + " tokens between 1 and " +
                     std::to_string(options.tokens - 1) + " can be predicted, not " +
                     std::to_string(options.predictions));
  }
  if (options.vocabulary < 2 || options.mask_id < 0 || options.mask_id >= options.vocabulary) {
    throw UsageError("synthetic text: mask_id must be one of at least two words, not word " +
                     std::to_string(options.mask_id) + " of " + std::to_string(options.vocabulary) +
                     ": choose a mask_id below the vocabulary");
  }
  if (options.samples < 1) throw UsageError("synthetic text: there must be at least one sample");
}

std::vector<at::Tensor> SyntheticText::get_batch(const BatchRequest& request, TensorPool& pool) const {
  at::Tensor traits = pool.take({static_cast<std::int64_t>(request.samples.size()), kTraits}, at::kLong);
  auto* row = traits.mutable_data_ptr<std::int64_t>();
  for (const std::int64_t sample : request.samples) {
    const Random4 bits = sample_bits(request.seed, request.epoch, sample);
    const bool other = bits[0] >> 31 != 0;
    // Two halves of one topic or of two: the label says which, so a model can learn it.
    row[kFirst] = topic_key(request.seed, bits[1] % kTopics);
    row[kSecond] = other ? topic_key(request.seed, bits[2] % kTopics) : row[kFirst];
    row[kPlaces] = bits[3];
    row[kLabel] = other ? 1 : 0;
    row += kTraits;
  }
  return {std::move(traits)};
}

std::vector<at::Tensor> SyntheticText::finish_batch(std::vector<at::Tensor> made) const {
  const at::Tensor traits = made.front().to(options_.device, /*non_blocking=*/true);
  const at::TensorOptions numbers = traits.options();
  const auto trait = [&](std::int64_t column) { return traits.select(1, column).unsqueeze(1); };

  const at::Tensor place = at::arange(options_.tokens, numbers);
  const at::Tensor second = place.ge(options_.tokens / 2).to(at::kLong).expand({traits.size(0), -1});
  const at::Tensor topic = at::where(second.to(at::kBool), trait(kSecond), trait(kFirst));
  // From one word less, because the next line makes room for the mask.
  at::Tensor words = hashed(topic + place * kGolden).remainder(options_.vocabulary - 1);
  words = words + words.ge(options_.mask_id);  // every word but the mask

  // One place from each of the P stretches that tile [1, S).
  const at::Tensor stretch = at::arange(options_.predictions + 1, numbers) * (options_.tokens - 1);
  const at::Tensor begin = stretch.floor_divide(options_.predictions) + 1;
  const at::Tensor first = begin.slice(0, 0, -1), length = begin.slice(0, 1) - first;
  const at::Tensor which = at::arange(options_.predictions, numbers) * kGolden;
  const at::Tensor predicted = first + hashed(trait(kPlaces) + which).remainder(length);

  const at::Tensor answers = words.gather(1, predicted);
  // In the order that BertBatch::of() takes: ids, segments, mask, positions, answers, weights, label.
  return {words.scatter(1, predicted, options_.mask_id),
          second.contiguous(),
          at::ones_like(words),
          predicted,
          answers,
          at::ones(predicted.sizes(), numbers.dtype(at::kFloat)),
          traits.select(1, kLabel).contiguous()};
}

std::string SyntheticText::fingerprint() const {
  return "synthetic-text-1 tokens=" + std::to_string(options_.tokens) +
         " predictions=" + std::to_string(options_.predictions) +
         " vocabulary=" + std::to_string(options_.vocabulary) + " mask=" + std::to_string(options_.mask_id) +
         " samples=" + std::to_string(options_.samples);
}

std::vector<at::Tensor> synthetic_text(const SyntheticTextOptions& options, std::int64_t batch,
                                       std::uint64_t seed, std::int64_t step) {
  if (batch < 1 || step < 0) {
    throw UsageError("synthetic text: a batch has at least one sample, and steps count from 0");
  }
  const at::NoGradGuard no_grad;
  const SyntheticText text(options);
  TensorPool pool;
  std::vector<std::int64_t> samples(static_cast<std::size_t>(batch));
  std::iota(samples.begin(), samples.end(), step * batch);
  return text.finish_batch(text.get_batch({.seed = seed, .epoch = 0, .samples = samples}, pool));
}

}}  // namespace holdfast::v0_2
