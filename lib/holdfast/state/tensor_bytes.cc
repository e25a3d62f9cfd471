#include "holdfast/state/tensor_bytes.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/strides.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <utility>

#include "holdfast/base/error.h"

namespace holdfast::inline v1 {
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

// Below this a second thread costs more than it copies.
constexpr std::int64_t kGrain = 256 << 10;

bool plain_memory(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

bool aligned(const void* address, std::size_t unit) {
  return reinterpret_cast<std::uintptr_t>(address) % unit == 0;
}

at::Tensor view_of(std::byte* bytes, const at::Tensor& like) {
  return at::from_blob(bytes, like.sizes(), at::TensorOptions(like.scalar_type()));
}

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

TensorSpec spec_of(std::string name, const at::Tensor& tensor) {
  const auto refuse = [&](const std::string& what) {
    throw UsageError("tensor '" + name + "' " + what +
                     ": leave it out of the state, or store what it is made of");
  };
  if (!tensor.defined()) refuse("is undefined");
  if (tensor.layout() != at::kStrided) refuse("is sparse");
  if (tensor.is_meta()) refuse("is on the meta device and has no elements");
  if (tensor.is_quantized()) refuse("is quantized");
  const auto dtype = dtype_of(tensor.scalar_type());
  if (!dtype) refuse(std::string("has the element type ") + c10::toString(tensor.scalar_type()));
  return {std::move(name), *dtype, tensor.sizes().vec()};
}

at::Tensor empty_like_spec(const TensorSpec& spec, std::optional<std::vector<std::int64_t>> strides,
                           at::Device device) {
  const auto options = at::TensorOptions(scalar_type_of(spec.dtype)).device(device);
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
    if (shape[i] == 0 || strides[i] < 0) return false;
    if (shape[i] > 1) order.push_back(i);
  }
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return strides[a] < strides[b]; });
  std::int64_t expected = 1;
  for (const std::size_t i : order) {
    if (strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

void CopyQueue::add(const std::byte* from, std::byte* to, std::size_t bytes) {
  if (bytes == 0) return;
  jobs_.push_back({total_, static_cast<std::int64_t>(bytes), to, from});
  total_ += static_cast<std::int64_t>(bytes);
}

void CopyQueue::add(const at::Tensor& from, std::span<std::byte> to) {
  if (to.size() != from.nbytes()) throw Error("a tensor and its place in the image differ in size");
  if (to.empty()) return;
  if (plain_memory(from)) {
    return add(static_cast<const std::byte*>(from.const_data_ptr()), to.data(), to.size());
  }
  const at::NoGradGuard no_grad;
  if (aligned(to.data(), from.element_size())) {
    view_of(to.data(), from).copy_(from);
  } else {  // small tensors lie at any offset of a file
    const at::Tensor packed = from.cpu().contiguous().resolve_conj().resolve_neg();
    std::memcpy(to.data(), packed.const_data_ptr(), to.size());
  }
}

void CopyQueue::add(std::span<const std::byte> from, const at::Tensor& to) {
  if (from.size() != to.nbytes()) throw Error("a tensor and its place in the image differ in size");
  if (from.empty()) return;
  if (plain_memory(to)) return add(from.data(), static_cast<std::byte*>(to.mutable_data_ptr()), from.size());
  const at::NoGradGuard no_grad;
  const at::Tensor packed = at::empty(to.sizes(), at::TensorOptions(to.scalar_type()));
  std::memcpy(packed.mutable_data_ptr(), from.data(), from.size());
  to.copy_(packed);
}

void CopyQueue::run() {
  at::parallel_for(0, total_, kGrain, [this](std::int64_t begin, std::int64_t end) {
    auto job = std::upper_bound(jobs_.begin(), jobs_.end(), begin,
                                [](std::int64_t at, const Job& other) { return at < other.start; });
    for (--job; begin < end; ++job) {
      const std::int64_t skip = begin - job->start;
      const std::int64_t bytes = std::min(end - begin, job->bytes - skip);
      std::memcpy(job->to + skip, job->from + skip, static_cast<std::size_t>(bytes));
      begin += bytes;
    }
  });
  jobs_.clear();
  total_ = 0;
}

}  // namespace holdfast::inline v1
