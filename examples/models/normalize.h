// relu?(norm(x) [+ add]) with the kernels that the model was made for. Updates the module's statistics and
// counter as its own forward() does.
//
// Errors: those of kernels/batch_norm.h. Threads: as torch::nn::Module.
#pragma once

#include <torch/nn/modules/batchnorm.h>

#include "examples/models/batch_norm.h"
#include "holdfast/kernels/batch_norm.h"

namespace holdfast { inline namespace v0_2 { namespace models {

// BatchNormKind::aten uses exactly norm(x), add_(), relu_(); their bits are the reference.
Activation normalize(BatchNormKind kind, torch::nn::BatchNorm2d& norm, const at::Tensor& x,
                     const BatchNormFusion& fusion);

// UsageError unless pictures have the layout for this kind. Checked at the model's entry, where the message
// is clearer.
void require_layout(BatchNormKind kind, const at::Tensor& pictures);

}}}  // namespace holdfast::v0_2::models
