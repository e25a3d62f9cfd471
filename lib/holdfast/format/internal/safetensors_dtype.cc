#include "holdfast/format/internal/safetensors_dtype.h"

#include <algorithm>
#include <utility>

#include "holdfast/format/safetensors.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// By growing alignment, in the order of the safetensors crate: its writer sorts tensors by it.
// complex128 is missing, because the format has no such type.
constexpr std::pair<DType, std::string_view> kNames[] = {
    {DType::boolean, "BOOL"},
    {DType::uint8, "U8"},
    {DType::int8, "I8"},
    {DType::float8_e5m2, "F8_E5M2"},
    {DType::float8_e4m3fn, "F8_E4M3"},
    {DType::int16, "I16"},
    {DType::uint16, "U16"},
    {DType::float16, "F16"},
    {DType::bfloat16, "BF16"},
    {DType::int32, "I32"},
    {DType::uint32, "U32"},
    {DType::float32, "F32"},
    {DType::complex64, "C64"},
    {DType::float64, "F64"},
    {DType::int64, "I64"},
    {DType::uint64, "U64"},
};

}  // namespace

std::string_view safetensors_name(DType dtype) {
  for (const auto& [known, name] : kNames) {
    if (known == dtype) return name;
  }
  return {};
}

std::optional<DType> safetensors_dtype(std::string_view name) {
  for (const auto& [dtype, known] : kNames) {
    if (known == name) return dtype;
  }
  return std::nullopt;
}

int internal::safetensors_rank(DType dtype) {
  const auto* const found = std::find_if(std::begin(kNames), std::end(kNames),
                                         [&](const auto& entry) { return entry.first == dtype; });
  return static_cast<int>(found - std::begin(kNames));
}

}}  // namespace holdfast::v0_2
