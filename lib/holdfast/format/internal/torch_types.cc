#include "holdfast/format/internal/torch_types.h"

#include <array>
#include <utility>

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

using Pair = std::pair<std::string_view, DType>;

// PyTorch's typed storages. Later types have none, and their tensors lie in an UntypedStorage.
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

constexpr std::array<Pair, 8> kSynonyms{{{"half", DType::float16},
                                         {"float", DType::float32},
                                         {"double", DType::float64},
                                         {"short", DType::int16},
                                         {"int", DType::int32},
                                         {"long", DType::int64},
                                         {"cfloat", DType::complex64},
                                         {"cdouble", DType::complex128}}};

}  // namespace

std::string_view storage_class_of(DType dtype) {
  for (const auto& [name, type] : kClasses) {
    if (type == dtype) return name;
  }
  return {};
}

std::optional<DType> dtype_of_storage_class(std::string_view name) {
  for (const auto& [known, type] : kClasses) {
    if (known == name) return type;
  }
  return std::nullopt;
}

std::optional<DType> dtype_of_torch(std::string_view name) {
  for (const auto& [known, type] : kSynonyms) {
    if (known == name) return type;
  }
  // The other names of PyTorch are those that dtype.h uses.
  return dtype_named(name);
}

}}}  // namespace holdfast::v0_2::internal
