// Synthetic sentence pairs with masked words for BERT's pre-training. They need no download and can be
// learnt. A few small kernels on the device make a batch: a pure function of (seed, sample), equal on every
// device.
//
//   const auto fields = holdfast::synthetic_text({.device = at::kCUDA}, 64, seed, step);
//   net->loss(holdfast::BertBatch::of(fields))
//
// Errors: UsageError for impossible shapes. Threads: pure. Works on the device's current stream, without
// waiting.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <vector>

namespace holdfast { inline namespace v0_2 {

// Fields, in the order of the published harness (int64 unless noted): input_ids, segment_ids, input_mask [B,
// S]; masked_lm_positions, masked_lm_ids [B, P]; masked_lm_weights float [B, P]; next_sentence_labels [B].
// Masks and weights are ones: every token is real and every prediction counts. The published table's phase 1
// has 128 tokens and 20 predictions, phase 2 has 512 and 80.
//
// What can be learnt: each half of a sequence has one of 64 topics, and a topic has one word for each place.
// With label 0 both halves have the same topic, with label 1 they have two. The P predicted places are
// distinct, in rising order, and never the first; they hold the word [MASK].
struct SyntheticTextOptions {
  std::int64_t tokens = 128;        // S
  std::int64_t predictions = 20;    // P, below S
  std::int64_t vocabulary = 30522;  // words are drawn from [0, vocabulary) without mask_id
  std::int64_t mask_id = 103;       // [MASK] in BERT's English vocabularies; below `vocabulary`
  at::Device device = at::kCPU;
};

// Samples step * batch to (step + 1) * batch - 1.
std::vector<at::Tensor> synthetic_text(const SyntheticTextOptions& options, std::int64_t batch,
                                       std::uint64_t seed, std::int64_t step);

}}  // namespace holdfast::v0_2
