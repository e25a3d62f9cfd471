// relu?(norm(x) [+ add]) by the kernels that a model was made for; the module's statistics and its counter
// move as in its own forward().
//
// Errors: those of holdfast/kernels/batch_norm.h. Threads: as torch::nn::Module.
#pragma once

#include <torch/nn/modules/batchnorm.h>

#include "holdfast/kernels/batch_norm.h"
#include "holdfast/models/batch_norm.h"

namespace holdfast::inline v1::models {

// With BatchNormKind::aten exactly the operators norm(x), add_(), relu_(), whose bits are the reference.
Activation normalize(BatchNormKind kind, torch::nn::BatchNorm2d& norm, const at::Tensor& x,
                     const BatchNormFusion& fusion);

// UsageError unless pictures are laid out for this kind. At the model's door the remedy is nearer.
void require_layout(BatchNormKind kind, const at::Tensor& pictures);

}  // namespace holdfast::inline v1::models
