// Who computes a model's batch norms, with the additions and ReLUs behind them. Parameters, buffers and their
// names are the same: a checkpoint of one kind goes on with another.
//
// Errors: UsageError for a word that is none. Threads: free functions, pure.
#pragma once

#include <string_view>

namespace holdfast::inline v1 {

enum class BatchNormKind {
  aten,   // Torch's operators, one by one: the reference
  cudnn,  // cuDNN's fused calls: FP16 in channels_last on a GPU
  fused,  // own kernels (holdfast/kernels/batch_norm.h): FP32, FP16, BF16 in channels_last; on a CPU slower
          // than aten
};

std::string_view word_of(BatchNormKind kind);
BatchNormKind parse_batch_norm(std::string_view word);

}  // namespace holdfast::inline v1
