// Weights of the training that an evaluation has exchanged for others, such as averages (optim/ema.h): a save
// meanwhile stores these, not what the module holds.
//
// Threads: any.
#pragma once

#include <ATen/core/Tensor.h>

#include "holdfast/base/export.h"

namespace holdfast { inline namespace v0_2 {

// Whether `tensor` has been exchanged.
HOLDFAST_EXPORT bool is_aside(const at::Tensor& tensor);
// From now on `weight` has the training's memory of `tensor`, until put_back(). Not twice.
HOLDFAST_EXPORT void put_aside(const at::Tensor& tensor, const at::Tensor& weight);
HOLDFAST_EXPORT void put_back(const at::Tensor& tensor) noexcept;
// The tensor itself, or what was put aside for it.
HOLDFAST_EXPORT at::Tensor in_training(const at::Tensor& tensor);

}}  // namespace holdfast::v0_2
