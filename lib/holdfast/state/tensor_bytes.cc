#include "holdfast/state/tensor_bytes.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/strides.h>

#include <algorithm>
#include <array>
#include <utility>

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr std::array<std::pair<c10::ScalarType, DType>, 17> kTypes{{
    {at::kBool, DType::boolean},
    {at::kByte, DType::uint8},
    {at::kChar, DType::int8},
    {at::kShort, DType::int16},
    {at::kInt, DType::int32},
    {at::kLong, DType::int64},
    {at::kHalf, DType::float16},
    {at::kBFloat16, DType::bfloat16},
    {at::kFloat, DType::float32},
    {at::kDouble, DType::float64},
    {at::kComplexFloat, DType::complex64},
    {at::kComplexDouble, DType::complex128},
    {at::kFloat8_e4m3fn, DType::float8_e4m3fn},
    {at::kFloat8_e5m2, DType::float8_e5m2},
    {at::kUInt16, DType::uint16},
    {at::kUInt32, DType::uint32},
    {at::kUInt64, DType::uint64},
}};

}  // namespace

std::optional<DType> dtype_of(c10::ScalarType type) {
  for (const auto& [torch_type, dtype] : kTypes) {
    if (torch_type == type) return dtype;
  }
  return std::nullopt;
}

c10::ScalarType scalar_type_of(DType dtype) {
  for (const auto& [torch_type, type] : kTypes) {
    if (type == dtype) return torch_type;
  }
  throw Error("a type without a counterpart in LibTorch: " + std::string(name_of(dtype)));
}

DType stored_type(const std::string& name, const at::Tensor& tensor, const char* remedy) {
  const auto refuse = [&](const std::string& what) {
    throw UsageError("tensor '" + name + "' " + what + ": " + remedy);
  };
  if (!tensor.defined()) refuse("is undefined");
  // Sparse, quantized and meta tensors have no plain bytes.
  if (tensor.layout() != at::kStrided) refuse("is sparse");
  if (tensor.is_meta()) refuse("is on the meta device and has no elements");
  if (tensor.is_quantized()) refuse("is quantized");
  const auto dtype = dtype_of(tensor.scalar_type());
  if (!dtype) refuse(std::string("has the element type ") + c10::toString(tensor.scalar_type()));
  return *dtype;
}

TensorSpec spec_of(std::string name, const at::Tensor& tensor) {
  const DType dtype = stored_type(name, tensor);
  return {std::move(name), dtype, tensor.sizes().vec()};
}

at::Tensor empty_like_spec(const TensorSpec& spec, std::optional<std::vector<std::int64_t>> strides,
                           at::Device device) {
  const auto options = at::TensorOptions(scalar_type_of(spec.dtype)).device(device);
  // Strides that leave gaps or overlap cannot be made; contiguous memory has the same values.
  if (strides && dense_strides(spec.shape, *strides)) return at::empty_strided(spec.shape, *strides, options);
  return at::empty(spec.shape, options);
}

std::optional<std::vector<std::int64_t>> unusual_strides(const at::Tensor& tensor) {
  const auto usual = c10::contiguous_strides(tensor.sizes());
  if (tensor.strides() == at::IntArrayRef(usual)) return std::nullopt;
  return tensor.strides().vec();
}

bool dense_strides(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides) {
  if (shape.size() != strides.size()) return false;
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    // Not dense: with a dimension of 0 or a negative stride nothing lies where it should.
    if (shape[i] == 0 || strides[i] < 0) return false;
    // The stride of a dimension of size 1 is never used, so it may be anything.
    if (shape[i] > 1) order.push_back(i);
  }
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return strides[a] < strides[b]; });
  // In order of strides each dimension must begin where the one before ends.
  std::int64_t expected = 1;
  for (const std::size_t i : order) {
    if (strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

}}  // namespace holdfast::v0_2
