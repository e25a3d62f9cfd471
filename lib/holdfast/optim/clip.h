// Bounds gradients before an update, with a few kernels for all tensors together. No function waits for a
// device.
//
//   const at::Tensor norm = holdfast::clip_grad_norm(gradients, 1.0);   // stays on the device: read it late
//
// Undefined gradients are ignored. The norm is computed on the device of the first gradient. With a gradient
// scaler, unscale first. Results equal those of torch::nn::utils, bit for bit on a CPU. Requires: strided
// gradients. Errors: UsageError for a negative or NaN limit and for sparse gradients. Threads: free functions
// on the current streams.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "holdfast/base/export.h"

namespace torch::optim {
class Optimizer;
}

namespace holdfast { inline namespace v0_2 {

// The defined gradients of an optimizer's parameters, each once even if its parameter is listed several
// times.
HOLDFAST_EXPORT std::vector<at::Tensor> gradients_of(const torch::optim::Optimizer& optimizer);

// L2 norm of all gradients together, computed in float at least: the norm of half gradients may exceed half's
// range.
HOLDFAST_EXPORT at::Tensor grad_norm(const std::vector<at::Tensor>& gradients);
// Multiplies all gradients by min(1, max_norm / (norm + 1e-6)), as torch::nn::utils::clip_grad_norm_. Returns
// the norm before clipping: a scalar of the gradients' type, or 0 on the CPU if there are none. If it is not
// finite, the gradients become zeros or NaN: skip that update.
HOLDFAST_EXPORT at::Tensor clip_grad_norm(std::vector<at::Tensor>& gradients, double max_norm);
// Divides all gradients by a scalar of one element, on any device, and adds others to them, each with one
// kernel for all tensors together. `sums` and `gradients` have the same layout.
HOLDFAST_EXPORT void divide_gradients(const std::vector<at::Tensor>& gradients, const at::Tensor& divisor);
HOLDFAST_EXPORT void add_gradients(const std::vector<at::Tensor>& sums,
                                   const std::vector<at::Tensor>& gradients);
// Bounds every element to [-limit, limit]; NaN stays NaN. As torch::nn::utils::clip_grad_value_.
HOLDFAST_EXPORT void clip_grad_value(std::vector<at::Tensor>& gradients, double limit);

}}  // namespace holdfast::v0_2
