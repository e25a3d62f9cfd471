#include "holdfast/snapshot/dtype.h"

#include <array>
#include <string>

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 {
namespace {

struct DTypeFacts {
  std::string_view name;
  std::size_t size;
};

// In the order of the enumerators' values, which are the indices here.
constexpr std::array<DTypeFacts, 17> kFacts{{
    {"bool", 1},
    {"uint8", 1},
    {"int8", 1},
    {"int16", 2},
    {"int32", 4},
    {"int64", 8},
    {"float16", 2},
    {"bfloat16", 2},
    {"float32", 4},
    {"float64", 8},
    {"complex64", 8},
    {"complex128", 16},
    {"float8_e4m3fn", 1},
    {"float8_e5m2", 1},
    {"uint16", 2},
    {"uint32", 4},
    {"uint64", 8},
}};
static_assert(static_cast<std::size_t>(DType::uint64) + 1 == kFacts.size());

const DTypeFacts& facts_of(DType dtype) {
  const auto index = static_cast<std::size_t>(dtype);
  // A value from a file or another version may lie outside of the enumeration.
  if (index >= kFacts.size()) throw Error("unknown element type number " + std::to_string(index));
  return kFacts[index];
}

}  // namespace

std::size_t size_of(DType dtype) { return facts_of(dtype).size; }
std::string_view name_of(DType dtype) { return facts_of(dtype).name; }

std::optional<DType> dtype_named(std::string_view name) {
  for (std::size_t i = 0; i < kFacts.size(); ++i) {
    if (kFacts[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

}}  // namespace holdfast::v0_2
