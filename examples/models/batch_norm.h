// The implementation of a model's batch norms and of the additions and ReLUs behind them. Parameters, buffers
// and names are the same, so checkpoints of one kind fit the others.
//
// Errors: UsageError for an unknown word. Threads: free functions, pure.
#pragma once

#include <string_view>

namespace holdfast { inline namespace v0_2 {

enum class BatchNormKind {
  aten,   // torch's separate operators: the reference
  fused,  // Holdfast's kernels (kernels/batch_norm.h): FP32, FP16, BF16 in channels_last; slower than aten on
          // a CPU
};

std::string_view word_of(BatchNormKind kind);
BatchNormKind parse_batch_norm(std::string_view word);

}}  // namespace holdfast::v0_2
