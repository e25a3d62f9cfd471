#include "holdfast/models/internal/normalize.h"

#include <string>

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v1 { namespace models {
namespace {

Activation by_module(torch::nn::BatchNorm2d& norm, const at::Tensor& x, const BatchNormFusion& fusion) {
  at::Tensor y = norm(x);
  if (fusion.add) y = y.add_(*fusion.add);
  if (fusion.relu) y = y.relu_();
  return {y, y};
}

}  // namespace

Activation normalize(BatchNormKind kind, torch::nn::BatchNorm2d& norm, const at::Tensor& x,
                     const BatchNormFusion& fusion) {
  if (kind == BatchNormKind::aten) return by_module(norm, x, fusion);
  BatchNormParameters parameters{.weight = norm->weight,
                                 .bias = norm->bias,
                                 .running_mean = norm->running_mean,
                                 .running_var = norm->running_var,
                                 .momentum = norm->options.momentum().value_or(0),
                                 .eps = norm->options.eps(),
                                 .training = norm->is_training()};
  if (parameters.training && !norm->options.momentum()) {
    parameters.momentum = 1 / (norm->num_batches_tracked.item<double>() + 1);
  }
  Activation result = kind == BatchNormKind::fused ? fused_batch_norm(x, parameters, fusion)
                                                   : cudnn_batch_norm(x, parameters, fusion);
  if (parameters.training) norm->num_batches_tracked.add_(1);  // after the call: a failed one is not counted
  return result;
}

void require_layout(BatchNormKind kind, const at::Tensor& pictures) {
  if (kind == BatchNormKind::aten || pictures.numel() == 0) return;
  if (pictures.is_contiguous(at::MemoryFormat::ChannelsLast)) return;
  throw UsageError("BatchNormKind::" + std::string(word_of(kind)) +
                   " needs pictures and weights in channels_last: to_channels_last(*net) and "
                   "pictures.contiguous(at::MemoryFormat::ChannelsLast) (--channels-last in Holdfast's "
                   "example), or another batch_norm in "
                   "the model's options");
}

}}}  // namespace holdfast::v1::models
