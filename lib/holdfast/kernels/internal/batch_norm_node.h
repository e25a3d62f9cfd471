// The two passes of a fused batch norm, as fused_batch_norm()'s autograd node calls them.
//
// The node has two outputs in the same memory. So the gradients of a block's main path and of its shortcut
// arrive separately, and a kernel adds them while it reads them.
//
// Errors: those of kernel.h. Threads: those of autograd.
#pragma once

#include "holdfast/kernels/batch_norm.h"

namespace holdfast { inline namespace v0_2 { namespace kernels::internal {

// Arguments of the forward pass. `add` is undefined if nothing is added.
struct BatchNormCall {
  at::Tensor x;
  at::Tensor add;
  BatchNormParameters norm;
  bool relu = false;
  bool backward_follows = false;
};

// y, and what the backward pass needs of the forward pass. Defined tensors are kept.
struct BatchNormResult {
  at::Tensor y;
  at::Tensor statistics;  // [2, C]: mean, and 1 / sqrt(variance + eps)
  at::Tensor mask;        // a bit an element: was the ReLU open; may be undefined
};

struct BatchNormGradients {
  at::Tensor x, add, weight, bias;
};

struct BackwardCall {
  at::Tensor gradient;   // gradient of y, in channels_last
  at::Tensor gradient2;  // to be added to `gradient`, or undefined
  at::Tensor x, weight, bias;
  BatchNormResult forward;
  bool added = false, relu = false, training = true;
  double eps = 0;
};

BatchNormResult fused_forward(const BatchNormCall& call);
BatchNormGradients fused_backward(const BackwardCall& call);

}}}  // namespace holdfast::v0_2::kernels::internal
