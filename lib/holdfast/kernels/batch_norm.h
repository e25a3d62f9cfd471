// y = relu?(batch_norm(x) [+ z]) as one node of autograd. What a GPU does between convolutions is bound by
// memory: separate operators read and write each activation again and again, these do it once for the
// statistics and once for the result, and twice in the backward pass, where they also add up the gradients of
// a block's two paths.
//
//   holdfast::Activation y = holdfast::fused_batch_norm(x, parameters_of(*norm), {.add = shortcut, .relu =
//   true}); next = conv(y.main); …  last = fused_batch_norm(conv(…), …, {.add = y.shortcut, .relu = true});
//
// The numbers are torch::nn::BatchNorm2d's: momentum, the running variance without bias, evaluation by the
// running statistics. Statistics and sums are FP32; the only roundings to a 16-bit type are those of y and of
// gradients, so results are nearer to exact ones than those of separate operators, and are not the same bits.
// The same inputs give the same bits every time on the same device.
//
// fused_batch_norm: own kernels, FP32, FP16 and BF16, on a GPU and, to be tested and to go on with such a
// run, on a CPU (which is quicker with Torch's operators). cudnn_batch_norm: cuDNN's fused calls, FP16 on a
// GPU only, the gradients of the two paths added separately.
//
// Requires: x is [N, C, H, W] in channels_last, C a multiple of 8 (FP32: 4); z as x; parameters and
// statistics FP32. In training N*H*W is at least 2. Both are done on the current stream; the first call of
// each kind compiles (kernel.h), so make it before a capture. Errors: UsageError that says what is not as
// required and what to do; Error from kernel.h; second derivatives are a UsageError. Threads: as
// torch::nn::Module.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace holdfast::inline v1 {

// A module's, not copies: the statistics are updated in place.
struct BatchNormParameters {
  at::Tensor weight;
  at::Tensor bias;
  at::Tensor running_mean;
  at::Tensor running_var;
  double momentum = 0.1;
  double eps = 1e-5;
  bool training = true;
};

struct BatchNormFusion {
  std::optional<at::Tensor> add = std::nullopt;
  bool relu = false;
};

// The same values for the two paths behind them. Their gradients arrive separately.
struct Activation {
  at::Tensor main;
  at::Tensor shortcut;
};

Activation fused_batch_norm(const at::Tensor& x, const BatchNormParameters& parameters,
                            const BatchNormFusion& fusion = {});
Activation cudnn_batch_norm(const at::Tensor& x, const BatchNormParameters& parameters,
                            const BatchNormFusion& fusion = {});

}  // namespace holdfast::inline v1
