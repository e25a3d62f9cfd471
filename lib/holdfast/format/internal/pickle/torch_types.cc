#include "holdfast/format/internal/pickle/torch_types.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

using Pair = std::pair<std::string_view, DType>;

// PyTorch's typed storages. Later types have none in Python, and their tensors lie in an UntypedStorage.
constexpr std::array<Pair, 12> kClasses{{{"BoolStorage", DType::boolean},
                                         {"ByteStorage", DType::uint8},
                                         {"CharStorage", DType::int8},
                                         {"ShortStorage", DType::int16},
                                         {"IntStorage", DType::int32},
                                         {"LongStorage", DType::int64},
                                         {"HalfStorage", DType::float16},
                                         {"BFloat16Storage", DType::bfloat16},
                                         {"FloatStorage", DType::float32},
                                         {"DoubleStorage", DType::float64},
                                         {"ComplexFloatStorage", DType::complex64},
                                         {"ComplexDoubleStorage", DType::complex128}}};

// C++ names the storage of any type, by c10::toString(), also where Python has no such class.
constexpr std::array<Pair, 5> kClassesOfCpp{{{"Float8_e4m3fnStorage", DType::float8_e4m3fn},
                                             {"Float8_e5m2Storage", DType::float8_e5m2},
                                             {"UInt16Storage", DType::uint16},
                                             {"UInt32Storage", DType::uint32},
                                             {"UInt64Storage", DType::uint64}}};

constexpr std::array<Pair, 8> kSynonyms{{{"half", DType::float16},
                                         {"float", DType::float32},
                                         {"double", DType::float64},
                                         {"short", DType::int16},
                                         {"int", DType::int32},
                                         {"long", DType::int64},
                                         {"cfloat", DType::complex64},
                                         {"cdouble", DType::complex128}}};

constexpr std::string_view kQuantized =
    "its elements are quantized, which no checkpoint holds: save its dequantize()";
constexpr std::string_view kHalfComplex =
    "its elements are complex32, which no checkpoint holds: save it as torch.complex64";
constexpr std::string_view kBits16 =
    "its elements are bits16, which no checkpoint holds: save its view(torch.int16)";
constexpr std::string_view kFewBits =
    "its elements have fewer than 8 bits, which no checkpoint holds: save it as torch.uint8";

using Reason = std::pair<std::string_view, std::string_view>;
constexpr std::array<Reason, 7> kRefusedClasses{{{"QInt8Storage", kQuantized},
                                                 {"QUInt8Storage", kQuantized},
                                                 {"QInt32Storage", kQuantized},
                                                 {"QUInt4x2Storage", kQuantized},
                                                 {"QUInt2x4Storage", kQuantized},
                                                 {"ComplexHalfStorage", kHalfComplex},
                                                 {"Bits16Storage", kBits16}}};
constexpr std::array<Reason, 22> kRefusedTypes{
    {{"qint8", kQuantized},    {"quint8", kQuantized},      {"qint32", kQuantized},  {"quint4x2", kQuantized},
     {"quint2x4", kQuantized}, {"complex32", kHalfComplex}, {"chalf", kHalfComplex}, {"bits16", kBits16},
     {"uint1", kFewBits},      {"uint2", kFewBits},         {"uint3", kFewBits},     {"uint4", kFewBits},
     {"uint5", kFewBits},      {"uint6", kFewBits},         {"uint7", kFewBits},     {"int1", kFewBits},
     {"int2", kFewBits},       {"int3", kFewBits},          {"int4", kFewBits},      {"int5", kFewBits},
     {"int6", kFewBits},       {"int7", kFewBits}}};

template <class Value>
const Value* looked_up(std::span<const std::pair<std::string_view, Value>> all, std::string_view name) {
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const auto& each) { return each.first == name; });
  return found == all.end() ? nullptr : &found->second;
}

TorchType stored(DType dtype) { return {.dtype = dtype}; }

}  // namespace

std::string_view storage_class_of(DType dtype) {
  for (const auto& [name, type] : kClasses) {
    if (type == dtype) return name;
  }
  return {};
}

std::optional<TorchType> type_of_storage_class(std::string_view name) {
  if (const DType* const dtype = looked_up<DType>(kClasses, name)) return stored(*dtype);
  if (const DType* const dtype = looked_up<DType>(kClassesOfCpp, name)) return stored(*dtype);
  if (const ByteType* const bytes = byte_type_of_storage(name)) {
    return TorchType{.dtype = DType::uint8, .bytes = bytes};
  }
  if (const auto* const why = looked_up<std::string_view>(kRefusedClasses, name))
    return TorchType{.why_not = *why};
  return std::nullopt;
}

std::optional<TorchType> type_of_torch(std::string_view name) {
  if (const DType* const dtype = looked_up<DType>(kSynonyms, name)) return stored(*dtype);
  // The other names of PyTorch are those that dtype.h uses.
  if (const auto dtype = dtype_named(name)) return stored(*dtype);
  if (const ByteType* const bytes = byte_type_named(name)) {
    return TorchType{.dtype = DType::uint8, .bytes = bytes};
  }
  if (const auto* const why = looked_up<std::string_view>(kRefusedTypes, name))
    return TorchType{.why_not = *why};
  return std::nullopt;
}

}}}  // namespace holdfast::v0_2::internal
