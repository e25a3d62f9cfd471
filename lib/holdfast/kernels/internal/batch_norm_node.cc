#include "holdfast/kernels/internal/batch_norm_node.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/batch_norm.h>
#include <torch/csrc/autograd/custom_function.h>

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 {
namespace kernels { namespace internal { namespace {

[[noreturn]] void refuse(const std::string& why) { throw UsageError("fused batch norm: " + why); }

void require_parameter(const at::Tensor& parameter, const char* name, const at::Tensor& x) {
  if (!parameter.defined()) {
    refuse(std::string(name) + " is missing: it is for norms with weights and running statistics");
  }
  if (parameter.scalar_type() != at::kFloat || parameter.numel() != x.size(1) || !parameter.is_contiguous()) {
    refuse(std::string(name) + " must be " + std::to_string(x.size(1)) +
           " FP32 numbers: keep the model in FP32 and train under autocast");
  }
  if (parameter.device() != x.device()) {
    refuse(std::string(name) + " is on " + parameter.device().str() + ", the activations on " +
           x.device().str());
  }
}

// The kernels load packs of 16 bytes, and a slice of a tensor may begin anywhere.
bool starts_at_16_bytes(const at::Tensor& tensor) {
  return reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()) % 16 == 0;
}

void require_fused_shape(const at::Tensor& x, const BatchNormParameters& norm,
                         const BatchNormFusion& fusion) {
  const auto type = x.scalar_type();
  if (type != at::kFloat && type != at::kHalf && type != at::kBFloat16) {
    refuse(std::string("activations are ") + c10::toString(type) +
           "; it is for Float, Half and BFloat16, other types need BatchNormKind::aten (--bn aten in "
           "Holdfast's example)");
  }
  if (x.dim() != 4 || !x.is_contiguous(at::MemoryFormat::ChannelsLast)) {
    refuse(
        "activations must be [N, C, H, W] in channels_last: lay out pictures and model so (--channels-last "
        "in Holdfast's example)");
  }
  // A pack of 16 bytes must not span two pixels.
  const std::int64_t multiple = type == at::kFloat ? 4 : 8;
  if (x.size(1) == 0 || x.size(1) % multiple != 0) {
    refuse(std::to_string(x.size(1)) + " channels are no multiple of " + std::to_string(multiple) +
           ", which " + c10::toString(type) +
           " needs: choose another width, or BatchNormKind::aten (--bn aten in Holdfast's example)");
  }
  if (!starts_at_16_bytes(x))
    refuse("activations must begin at a multiple of 16 bytes: give a clone() of them");
  if (fusion.add && (fusion.add->sizes() != x.sizes() || fusion.add->device() != x.device())) {
    refuse("what is to be added must have the shape and the device of the activations");
  }
  require_parameter(norm.weight, "weight", x);
  require_parameter(norm.bias, "bias", x);
  require_parameter(norm.running_mean, "running_mean", x);
  require_parameter(norm.running_var, "running_var", x);
  // The variance divides by the number of values less one.
  if (norm.training && x.numel() / x.size(1) < 2) {
    refuse("in training each channel needs at least two values; choose a larger batch");
  }
}

at::Tensor packed_like(const at::Tensor& tensor, const at::Tensor& like) {
  at::Tensor packed = tensor.to(like.scalar_type()).contiguous(at::MemoryFormat::ChannelsLast);
  return starts_at_16_bytes(packed) ? packed : packed.clone();
}

Activation by_operators(const at::Tensor& x, const BatchNormParameters& norm, const BatchNormFusion& fusion) {
  at::Tensor y = at::batch_norm(x, norm.weight, norm.bias, norm.running_mean, norm.running_var, norm.training,
                                norm.momentum, norm.eps, /*cudnn_enabled=*/true);
  // In place: batch norm's backward pass needs its input, not its output.
  if (fusion.add) y = y.add_(*fusion.add);
  if (fusion.relu) y = y.relu_();
  return {y, y};
}

struct BatchNormNode : torch::autograd::Function<BatchNormNode> {
  using Tensors = torch::autograd::variable_list;
  using Context = torch::autograd::AutogradContext;

  static Tensors forward(Context* context, const at::Tensor& x, const std::optional<at::Tensor>& add,
                         const at::Tensor& weight, const at::Tensor& bias, const BatchNormCall& call) {
    static_cast<void>(add);  // also in `call`; autograd sees only arguments
    const BatchNormResult result = fused_forward(call);
    context->save_for_backward({x, weight, bias, result.statistics, result.mask});
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
                      .forward = {.y = {}, .statistics = saved[3], .mask = saved[4]},
                      .added = context->saved_data["added"].toBool(),
                      .relu = context->saved_data["relu"].toBool(),
                      .training = context->saved_data["training"].toBool(),
                      .eps = context->saved_data["eps"].toDouble()};
    if (gradients[0].defined() && gradients[1].defined())
      call.gradient2 = packed_like(gradients[1], saved[0]);
    BatchNormGradients found = fused_backward(call);
    out[0] = std::move(found.x);
    if (call.added) out[1] = std::move(found.add);
    out[2] = std::move(found.weight);
    out[3] = std::move(found.bias);
    return out;
  }
};

}}}  // namespace kernels::internal

Activation fused_batch_norm(const at::Tensor& x, const BatchNormParameters& norm,
                            const BatchNormFusion& fusion) {
  using namespace kernels::internal;  // NOLINT(google-build-using-namespace)
  // An empty batch only asks for shapes, and CUDA refuses a grid without blocks.
  if (x.numel() == 0) return by_operators(x, norm, fusion);
  require_fused_shape(x, norm, fusion);
  const bool wanted = at::GradMode::is_enabled() &&
                      (x.requires_grad() || norm.weight.requires_grad() || norm.bias.requires_grad() ||
                       (fusion.add && fusion.add->requires_grad()));
  BatchNormCall call{
      .x = x.detach(), .add = {}, .norm = norm, .relu = fusion.relu, .backward_follows = wanted};
  if (fusion.add) call.add = packed_like(fusion.add->detach(), x);
  if (!wanted) {
    const at::NoGradGuard no_grad;
    const at::Tensor y = fused_forward(call).y;
    return {y, y};
  }
  const torch::autograd::variable_list y = BatchNormNode::apply(x, fusion.add, norm.weight, norm.bias, call);
  return {y[0], y[1]};
}

}}  // namespace holdfast::v0_2
