// The autograd node around a backend that computes a fused batch norm forward and backward.
//
// It has two outputs in the same memory. So the gradients of a block's main path and of its shortcut arrive
// separately, and the backend may add them while it reads them.
//
// Errors: UsageError for a second derivative. Threads: those of autograd.
#pragma once

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "holdfast/base/error.h"
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
  at::Tensor kept_y;      // y, or undefined
  at::Tensor statistics;  // [2, C]: mean, and 1 / sqrt(variance + eps)
  at::Tensor mask;        // format of the backend; may be undefined
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

// Computes with torch's separate operators.
Activation by_operators(const at::Tensor& x, const BatchNormParameters& norm, const BatchNormFusion& fusion);

bool starts_at_16_bytes(const at::Tensor& tensor);

// Throws UsageError unless the call fits all backends.
void require_fused_shape(const at::Tensor& x, const BatchNormParameters& norm, const BatchNormFusion& fusion);

inline at::Tensor packed_like(const at::Tensor& tensor, const at::Tensor& like) {
  at::Tensor packed = tensor.to(like.scalar_type()).contiguous(at::MemoryFormat::ChannelsLast);
  return starts_at_16_bytes(packed) ? packed : packed.clone();
}

template <class Backend>
struct BatchNormNode : torch::autograd::Function<BatchNormNode<Backend>> {
  using Tensors = torch::autograd::variable_list;
  using Context = torch::autograd::AutogradContext;

  static Tensors forward(Context* context, const at::Tensor& x, const std::optional<at::Tensor>& add,
                         const at::Tensor& weight, const at::Tensor& bias, const BatchNormCall& call) {
    static_cast<void>(add);  // also in `call`; autograd sees only arguments
    const BatchNormResult result = Backend::forward(call);
    context->save_for_backward({x, weight, bias, result.kept_y, result.statistics, result.mask});
    context->saved_data["added"] = call.add.defined();
    context->saved_data["relu"] = call.relu;
    context->saved_data["training"] = call.norm.training;
    context->saved_data["eps"] = call.norm.eps;
    context->set_materialize_grads(false);
    return {result.y, result.y.alias()};
  }

  static Tensors backward(Context* context, const Tensors& gradients) {
    if (at::GradMode::is_enabled()) {
      throw UsageError(
          "a fused batch norm has no second derivative: train with BatchNormKind::aten (--bn aten in "
          "Holdfast's example)");
    }
    const Tensors saved = context->get_saved_variables();
    const at::Tensor& first = gradients[0].defined() ? gradients[0] : gradients[1];
    Tensors out(5);
    if (!first.defined()) return out;
    BackwardCall call{.gradient = packed_like(first, saved[0]),
                      .gradient2 = {},
                      .x = saved[0],
                      .weight = saved[1],
                      .bias = saved[2],
                      .forward = {.y = {}, .kept_y = saved[3], .statistics = saved[4], .mask = saved[5]},
                      .added = context->saved_data["added"].toBool(),
                      .relu = context->saved_data["relu"].toBool(),
                      .training = context->saved_data["training"].toBool(),
                      .eps = context->saved_data["eps"].toDouble()};
    if (gradients[0].defined() && gradients[1].defined())
      call.gradient2 = packed_like(gradients[1], saved[0]);
    BatchNormGradients found = Backend::backward(call);
    out[0] = std::move(found.x);
    if (call.added) out[1] = std::move(found.add);
    out[2] = std::move(found.weight);
    out[3] = std::move(found.bias);
    return out;
  }

  static Activation run(const at::Tensor& x, const BatchNormParameters& norm, const BatchNormFusion& fusion) {
    const bool wanted = at::GradMode::is_enabled() &&
                        (x.requires_grad() || norm.weight.requires_grad() || norm.bias.requires_grad() ||
                         (fusion.add && fusion.add->requires_grad()));
    BatchNormCall call{
        .x = x.detach(), .add = {}, .norm = norm, .relu = fusion.relu, .backward_follows = wanted};
    if (fusion.add) call.add = packed_like(fusion.add->detach(), x);
    if (!wanted) {
      const at::NoGradGuard no_grad;
      const at::Tensor y = Backend::forward(call).y;
      return {y, y};
    }
    const Tensors y = BatchNormNode::apply(x, fusion.add, norm.weight, norm.bias, call);
    return {y[0], y[1]};
  }
};

}}}  // namespace holdfast::v0_2::kernels::internal
