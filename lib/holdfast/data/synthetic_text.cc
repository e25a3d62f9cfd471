#include "holdfast/data/synthetic_text.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>

#include <string>

#include "holdfast/base/error.h"
#include "holdfast/data/random.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr std::uint32_t kTopics = 64;
constexpr std::int64_t kGolden = 0x9E3779B9;  // 2^32 / golden ratio: spreads neighbours
constexpr std::int64_t kLow = 0xFFFFFFFF;
// Columns of the tensor of traits.
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

void require_possible(const SyntheticTextOptions& options) {
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
}

// What decides each sample, on the CPU: int64 [batch, kTraits].
at::Tensor traits_of(std::int64_t batch, std::uint64_t seed, std::int64_t first) {
  at::Tensor traits = at::empty({batch, kTraits}, at::kLong);
  auto* row = traits.mutable_data_ptr<std::int64_t>();
  for (std::int64_t sample = first; sample < first + batch; ++sample) {
    const Random4 bits = sample_bits(seed, /*epoch=*/0, sample);
    const bool other = bits[0] >> 31 != 0;
    // Two halves of one topic or of two: the label says which, so a model can learn it.
    const std::uint32_t topic = bits[1] % kTopics;
    const std::uint32_t away = other ? 1 + bits[2] % (kTopics - 1) : 0;
    row[kFirst] = topic_key(seed, topic);
    row[kSecond] = topic_key(seed, (topic + away) % kTopics);
    row[kPlaces] = bits[3];
    row[kLabel] = other ? 1 : 0;
    row += kTraits;
  }
  return traits;
}

// The seven fields, made where the traits are.
std::vector<at::Tensor> fields_of(const SyntheticTextOptions& options, const at::Tensor& traits) {
  const at::TensorOptions numbers = traits.options();
  const auto trait = [&](std::int64_t column) { return traits.select(1, column).unsqueeze(1); };

  const at::Tensor place = at::arange(options.tokens, numbers);
  const at::Tensor second = place.ge(options.tokens / 2).to(at::kLong).expand({traits.size(0), -1});
  const at::Tensor topic = at::where(second.to(at::kBool), trait(kSecond), trait(kFirst));
  // From one word less, because the next line makes room for the mask.
  at::Tensor words = hashed(topic + place * kGolden).remainder(options.vocabulary - 1);
  words = words + words.ge(options.mask_id);  // every word but the mask

  // One place from each of the P stretches that tile [1, S).
  const at::Tensor stretch = at::arange(options.predictions + 1, numbers) * (options.tokens - 1);
  const at::Tensor begin = stretch.floor_divide(options.predictions) + 1;
  const at::Tensor first = begin.slice(0, 0, -1), length = begin.slice(0, 1) - first;
  const at::Tensor which = at::arange(options.predictions, numbers) * kGolden;
  const at::Tensor predicted = first + hashed(trait(kPlaces) + which).remainder(length);

  const at::Tensor answers = words.gather(1, predicted);
  // In the order that BertBatch::of() takes: ids, segments, mask, positions, answers, weights, label.
  return {words.scatter(1, predicted, options.mask_id),
          second.contiguous(),
          at::ones_like(words),
          predicted,
          answers,
          at::ones(predicted.sizes(), numbers.dtype(at::kFloat)),
          traits.select(1, kLabel).contiguous()};
}

}  // namespace

std::vector<at::Tensor> synthetic_text(const SyntheticTextOptions& options, std::int64_t batch,
                                       std::uint64_t seed, std::int64_t step) {
  if (batch < 1 || step < 0) {
    throw UsageError("synthetic text: a batch has at least one sample, and steps count from 0");
  }
  require_possible(options);
  const at::NoGradGuard no_grad;
  const at::Tensor traits = traits_of(batch, seed, step * batch);
  return fields_of(options, traits.to(options.device, /*non_blocking=*/true));
}

}}  // namespace holdfast::v0_2
