#include "holdfast/kernels/internal/batch_norm_node.h"

#include <ATen/ops/batch_norm.h>

namespace holdfast { inline namespace v0_2 { namespace kernels::internal {
namespace {

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

}  // namespace

Activation by_operators(const at::Tensor& x, const BatchNormParameters& norm, const BatchNormFusion& fusion) {
  at::Tensor y = at::batch_norm(x, norm.weight, norm.bias, norm.running_mean, norm.running_var, norm.training,
                                norm.momentum, norm.eps, /*cudnn_enabled=*/true);
  // In place: batch norm's backward pass needs its input, not its output.
  if (fusion.add) y = y.add_(*fusion.add);
  if (fusion.relu) y = y.relu_();
  return {y, y};
}

// The kernels load packs of 16 bytes.
// A slice of a tensor may begin anywhere.
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

}}}  // namespace holdfast::v0_2::kernels::internal
