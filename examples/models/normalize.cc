#include "examples/models/normalize.h"

#include <ATen/Context.h>
#include <ATen/ops/batch_norm.h>

#include <string>

#include "holdfast/base/error.h"
#include "holdfast/kernels/batch_counts.h"

namespace holdfast { inline namespace v0_2 { namespace models {
namespace {

// What norm(x) computes, to the bit; only the counter is added later, with all others.
at::Tensor counted_together(torch::nn::BatchNorm2d& norm, const at::Tensor& x) {
  at::Tensor y = at::batch_norm(x, norm->weight, norm->bias, norm->running_mean, norm->running_var,
                                /*training=*/true, *norm->options.momentum(), norm->options.eps(),
                                at::globalContext().userEnabledCuDNN());
  BatchCounts::count(norm->num_batches_tracked);
  return y;
}

Activation by_module(torch::nn::BatchNorm2d& norm, const at::Tensor& x, const BatchNormFusion& fusion) {
  // Only where batch_norm() and the module do the same; other cases go through the module.
  const bool together = BatchCounts::collects() && norm->is_training() && norm->options.momentum() &&
                        norm->num_batches_tracked.defined() && x.dim() == 4 && x.numel() > 0;
  at::Tensor y = together ? counted_together(norm, x) : norm(x);
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
  // Without a momentum the running mean is that of all batches; the count is read from the device.
  if (parameters.training && !norm->options.momentum()) {
    parameters.momentum = 1 / (norm->num_batches_tracked.item<double>() + 1);
  }
  Activation result = fused_batch_norm(x, parameters, fusion);
  if (!parameters.training) return result;
  // After the call: a failed one is not counted.
  if (norm->options.momentum()) {
    BatchCounts::count(norm->num_batches_tracked);
  } else {
    norm->num_batches_tracked.add_(1);
  }
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

}}}  // namespace holdfast::v0_2::models
