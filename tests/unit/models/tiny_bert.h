// A BERT of 84,131 parameters with the oracle's numbers, and the batch that its losses are known for.
//
//   Bert net = filled_bert(tiny_bert());
//   expect_close(net->loss(tiny_batch()).total.item<double>(), 6.28527504, "loss");
//
// Threads: any.
#pragma once

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cstdint>

#include "examples/models/bert.h"
#include "unit/models/on_one_thread.h"
#include "unit/models/oracle_fill.h"

namespace holdfast::test {

// Layers this small are not worth threads: two that wait for each other on a busy machine take ten times as
// long.
using TinyBert = OnOneThread<testing::Test>;

inline BertOptions without_dropout(BertOptions options) {
  options.dropout = options.attention_dropout = 0;
  return options;
}
inline BertOptions tiny_bert(BertGelu gelu = BertGelu::erf, bool padding_idx = true) {
  return without_dropout({.vocabulary = 97,
                          .hidden = 64,
                          .layers = 2,
                          .heads = 4,
                          .inner = 128,
                          .positions = 32,
                          .gelu = gelu,
                          .padding_idx = padding_idx,
                          .initialize = false});
}

inline at::Tensor tokens_of(std::uint32_t stream, at::IntArrayRef sizes, std::int64_t vocabulary) {
  at::Tensor tokens = at::empty(sizes, at::kLong);
  auto* to = tokens.mutable_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < tokens.numel(); ++i) to[i] = oracle_bits(stream, i) % vocabulary;
  return tokens;
}

inline BertBatch oracle_batch(std::int64_t sequences, std::int64_t tokens, std::int64_t predictions,
                              std::int64_t vocabulary) {
  BertBatch batch{.input_ids = tokens_of(2'000'000, {sequences, tokens}, vocabulary),
                  .segment_ids = at::zeros({sequences, tokens}, at::kLong),
                  .input_mask = at::ones({sequences, tokens}, at::kLong),
                  .masked_lm_positions = at::empty({sequences, predictions}, at::kLong),
                  .masked_lm_ids = tokens_of(3'000'000, {sequences, predictions}, vocabulary),
                  .masked_lm_weights = {},
                  .next_sentence_labels = at::empty({sequences}, at::kLong)};
  batch.segment_ids.slice(1, tokens / 2).fill_(1);
  for (std::int64_t b = 0; b < sequences; ++b) {
    for (std::int64_t j = 0; j < predictions; ++j) {
      batch.masked_lm_positions[b][j] = j * tokens / predictions + b % 2;
    }
    batch.next_sentence_labels[b] = b % 2;
  }
  return batch;
}
inline BertBatch tiny_batch() {
  BertBatch batch = oracle_batch(2, 16, 3, 97);
  batch.input_mask[1].slice(0, 13).fill_(0);
  return batch;
}

inline Bert filled_bert(const BertOptions& options) {
  Bert net(options);
  net->to(at::kDouble);
  oracle_fill(*net);
  return net;
}

}  // namespace holdfast::test
