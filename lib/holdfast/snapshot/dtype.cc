#include "holdfast/snapshot/dtype.h"

#include <array>
#include <string>

#include "holdfast/base/error.h"

namespace holdfast::inline v1 {
namespace {

struct DTypeFacts {
  std::string_view name;
  std::size_t size;
  bool floating;
};

// In the order of the enumerators' values.
constexpr std::array<DTypeFacts, 17> kFacts{{
    {"bool", 1, false},
    {"uint8", 1, false},
    {"int8", 1, false},
    {"int16", 2, false},
    {"int32", 4, false},
    {"int64", 8, false},
    {"float16", 2, true},
    {"bfloat16", 2, true},
    {"float32", 4, true},
    {"float64", 8, true},
    {"complex64", 8, false},
    {"complex128", 16, false},
    {"float8_e4m3fn", 1, true},
    {"float8_e5m2", 1, true},
    {"uint16", 2, false},
    {"uint32", 4, false},
    {"uint64", 8, false},
}};
static_assert(static_cast<std::size_t>(DType::uint64) + 1 == kFacts.size());

const DTypeFacts& facts_of(DType dtype) {
  const auto index = static_cast<std::size_t>(dtype);
  if (index >= kFacts.size()) throw Error("unknown element type number " + std::to_string(index));
  return kFacts[index];
}

}  // namespace

std::size_t size_of(DType dtype) { return facts_of(dtype).size; }
std::string_view name_of(DType dtype) { return facts_of(dtype).name; }
bool is_floating(DType dtype) { return facts_of(dtype).floating; }

std::optional<DType> dtype_named(std::string_view name) {
  for (std::size_t i = 0; i < kFacts.size(); ++i) {
    if (kFacts[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

}  // namespace holdfast::inline v1
