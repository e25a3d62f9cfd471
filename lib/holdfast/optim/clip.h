// Gradients held within bounds before an update, a few kernels for all tensors together.
//
//   const at::Tensor norm = holdfast::clip_grad_norm(gradients, 1.0);   // stays on the device: read it late
//
// clip_grad_norm multiplies all gradients with min(1, max_norm / (norm + 1e-6)), norm being the L2 norm of
// all of them: torch::nn::utils::clip_grad_norm_, bit for bit on a CPU, but without waiting for a device. A
// norm that is not finite leaves useless gradients, zeros or NaN: look at the returned norm, and leave that
// update out. clip_grad_value bounds every element to [-limit, limit]; NaN stays NaN. Equal to
// clip_grad_value_'s bits.
//
// Undefined gradients are passed over; those on several devices are measured on the first one's. Under a
// gradient scaler unscale first.
// Requires: strided gradients. Errors: UsageError for a limit that is negative or NaN, and for sparse ones.
// Threads: free functions; work goes to the current streams.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace holdfast::inline v1 {

// All gradients of an optimizer's parameters that are there.
std::vector<at::Tensor> gradients_of(const torch::optim::Optimizer& optimizer);

// Of all of them together, as clip_grad_norm measures it, but in float at least: the norm of half gradients
// may be more than half can hold.
at::Tensor grad_norm(const std::vector<at::Tensor>& gradients);
// Returns the norm before clipping, a scalar of the gradients' type; 0 on the CPU without any.
at::Tensor clip_grad_norm(std::vector<at::Tensor>& gradients, double max_norm);
void clip_grad_value(std::vector<at::Tensor>& gradients, double limit);

}  // namespace holdfast::inline v1
