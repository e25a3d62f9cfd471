// Element types of tensors, without Torch. Files contain the numeric values, so they never change; append
// only.
//
// Errors: dtype_named() returns nullopt for an unknown name. Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "holdfast/base/export.h"

namespace holdfast { inline namespace v0_2 {

enum class DType : std::uint8_t {
  boolean = 0,
  uint8 = 1,
  int8 = 2,
  int16 = 3,
  int32 = 4,
  int64 = 5,
  float16 = 6,
  bfloat16 = 7,
  float32 = 8,
  float64 = 9,
  complex64 = 10,
  complex128 = 11,
  float8_e4m3fn = 12,
  float8_e5m2 = 13,
  uint16 = 14,
  uint32 = 15,
  uint64 = 16,
};

HOLDFAST_EXPORT std::size_t size_of(DType dtype);       // bytes of one element
HOLDFAST_EXPORT std::string_view name_of(DType dtype);  // the name in files and messages: "float32"
HOLDFAST_EXPORT std::optional<DType> dtype_named(std::string_view name);

}}  // namespace holdfast::v0_2
