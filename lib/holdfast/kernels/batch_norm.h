// y = relu?(batch_norm(x) [+ z]) as one autograd node. Between convolutions memory bandwidth limits a GPU.
// Separate operators read and write each activation several times; these kernels read x twice and write y
// once. Example:
//
//   Activation y = fused_batch_norm(x, parameters_of(*norm), {.add = shortcut, .relu = true});
//   next = conv(y.main); …  last = fused_batch_norm(conv(…), …, {.add = y.shortcut, .relu = true});
//
// Requires: x is [N, C, H, W] in channels_last, C a multiple of 8 (FP32: 4); z has x's shape; parameters and
// statistics are FP32; training needs N*H*W >= 2. The first call of each kind compiles (kernel.h): make it
// before a capture. Errors: UsageError, which says what is wrong and what to do; also for second derivatives.
// Error from kernel.h. Threads: as torch::nn::Module, on the current stream.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "holdfast/base/export.h"

namespace holdfast { inline namespace v0_2 {

// Tensors of the module, not copies: the statistics are updated in place. Defaults are
// torch::nn::BatchNorm2d's.
struct BatchNormParameters {
  at::Tensor weight;
  at::Tensor bias;
  at::Tensor running_mean;
  at::Tensor running_var;
  // Weight of the new batch in the running statistics.
  double momentum = 0.1;
  // Added to the variance.
  double eps = 1e-5;
  // True: uses and updates the batch's statistics. False: uses the running statistics.
  bool training = true;
};

struct BatchNormFusion {
  // z: a tensor that is added before the ReLU.
  std::optional<at::Tensor> add = std::nullopt;
  bool relu = false;
};

// y twice, for the two paths that use it. Their gradients arrive separately, and the backward kernel adds
// them while it reads them.
struct Activation {
  at::Tensor main;
  at::Tensor shortcut;
};

// Computes torch::nn::BatchNorm2d's formulas: momentum, the running variance without bias, evaluation by
// running statistics. Statistics and sums are FP32. Only y and the gradients are rounded to 16 bits, so
// results are closer to exact ones than those of separate operators, and have other bits. On one device equal
// inputs always give equal bits.
//
// FP32, FP16, BF16, on GPUs and on CPUs. On a CPU torch's operators are faster; the CPU path is for tests,
// and to continue a run of a GPU.
HOLDFAST_EXPORT Activation fused_batch_norm(const at::Tensor& x, const BatchNormParameters& parameters,
                                            const BatchNormFusion& fusion = {});
// Compiles the kernels of fused_batch_norm() for inputs of this type now, all at once, instead of in the
// first step. Does nothing on a CPU.
HOLDFAST_EXPORT void prepare_fused_batch_norm(at::ScalarType type, c10::Device device);

}}  // namespace holdfast::v0_2
