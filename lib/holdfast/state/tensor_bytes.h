// Converts between ATen's tensors and the snapshot's: element types, specs, strides.
//
// Errors: UsageError, which names the tensor, for tensors without storable bytes: undefined, sparse,
// quantized and meta tensors, and element types that a checkpoint cannot hold. Threads: free functions; they
// only read the tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "holdfast/snapshot/tensor_spec.h"

namespace holdfast { inline namespace v0_2 {

std::optional<DType> dtype_of(c10::ScalarType type);
c10::ScalarType scalar_type_of(DType dtype);
// The tensor's type in a file; UsageError if no file can hold the tensor, with what to do about it.
inline constexpr char kLeaveItOut[] = "leave it out of the state, or store what it is made of";
DType stored_type(const std::string& name, const at::Tensor& tensor, const char* remedy = kLeaveItOut);
TensorSpec spec_of(std::string name, const at::Tensor& tensor);

// A new tensor of that type and shape on `device`, with the strides if given. Its elements are not set.
at::Tensor empty_like_spec(const TensorSpec& spec, std::optional<std::vector<std::int64_t>> strides,
                           at::Device device);

// The tensor's strides, if they differ from those of a contiguous tensor. Strides of dimensions of size 1
// count too, because ATen chooses kernels by them.
std::optional<std::vector<std::int64_t>> unusual_strides(const at::Tensor& tensor);
// True if the strides fill the shape without holes or overlaps, so that empty_strided can create the tensor.
bool dense_strides(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides);

}}  // namespace holdfast::v0_2
