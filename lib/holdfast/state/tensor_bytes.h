// The border between ATen's tensors and the snapshot's: element types, specs, strides.
//
// Errors: UsageError naming the tensor for what has no such bytes: undefined, sparse, quantized or meta
// tensors, element types that a checkpoint cannot hold.
// Threads: free functions; they only read the tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "holdfast/snapshot/tensor_spec.h"

namespace holdfast::inline v1 {

std::optional<DType> dtype_of(c10::ScalarType type);
c10::ScalarType scalar_type_of(DType dtype);
TensorSpec spec_of(std::string name, const at::Tensor& tensor);

// A new tensor of that type, shape and (where given) strides, on `device`; its elements are not set.
at::Tensor empty_like_spec(const TensorSpec& spec, std::optional<std::vector<std::int64_t>> strides,
                           at::Device device);

// The tensor's strides where they are not those of a contiguous tensor; exact, also for dimensions of size 1,
// because kernels are chosen by them.
std::optional<std::vector<std::int64_t>> unusual_strides(const at::Tensor& tensor);
// Whether strides fill their shape without holes or overlaps: what can be made anew with empty_strided.
bool dense_strides(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides);

}  // namespace holdfast::inline v1
