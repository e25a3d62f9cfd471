// Sentence pairs with masked words for BERT's pre-training, that need no download and can be learnt. Made on
// the device, a few small kernels a batch; a pure function of (seed, epoch, sample), equal on every device.
//
//   holdfast::Loader loader(holdfast::SyntheticText({.tokens = 128, .predictions = 20, .device = at::kCUDA}),
//                           {.batch_size = 64, .seed = 1});
//   net->loss(holdfast::BertBatch::of(batch->fields))
//
//   const auto fields = holdfast::synthetic_text({.device = at::kCUDA}, 64, seed, step);  // no loader
//
// The fields are those of the published harness, in its order: input_ids, segment_ids, input_mask [B, S];
// masked_lm_positions, masked_lm_ids [B, P]; masked_lm_weights float [B, P]; next_sentence_labels [B]. All
// else is int64; masks and weights are ones: every token is one, every prediction counts. Phase 1 of the
// published table is tokens 128, predictions 20, phase 2 is 512 and 80.
//
// What can be learnt: a sequence's halves are of one of 64 topics, each with a word of its own for each
// place; where the label is 1, of two (by chance the same, one time in 64). Predicted places, P distinct ones
// in rising order and never the first, hold the word [MASK].
//
// Errors: UsageError for shapes that cannot be. Threads: get_batch from any thread, finish_batch on the
// training thread: it launches on the device's current stream and never waits for it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

#include "holdfast/data/dataset.h"

namespace holdfast::inline v1 {

struct SyntheticTextOptions {
  std::int64_t tokens = 128;         // S
  std::int64_t predictions = 20;     // P, below S
  std::int64_t vocabulary = 30522;   // words are drawn from [0, vocabulary) without mask_id
  std::int64_t mask_id = 103;        // that of [MASK] in BERT's English vocabularies; below the vocabulary
  std::int64_t samples = 1'000'000;  // of an epoch: nothing is stored
  at::Device device = at::kCPU;
};

class SyntheticText {
 public:
  explicit SyntheticText(const SyntheticTextOptions& options);

  std::int64_t size() const { return options_.samples; }
  // The samples' keys: int64 [B].
  std::vector<at::Tensor> get_batch(const BatchRequest& request, TensorPool& pool) const;
  // The seven fields.
  std::vector<at::Tensor> finish_batch(std::vector<at::Tensor> made) const;
  std::string fingerprint() const;

 private:
  SyntheticTextOptions options_;
};

// Samples step * batch … (step + 1) * batch - 1 of epoch 0.
std::vector<at::Tensor> synthetic_text(const SyntheticTextOptions& options, std::int64_t batch,
                                       std::uint64_t seed, std::int64_t step);

}  // namespace holdfast::inline v1
