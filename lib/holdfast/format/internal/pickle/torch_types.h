// PyTorch's names of element types: the storage class ("FloatStorage") and the type itself ("float32").
//
// Errors: an empty name, or nullopt. Threads: pure.
#pragma once

#include <optional>
#include <string_view>

#include "holdfast/format/byte_types.h"
#include "holdfast/snapshot/dtype.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// What a checkpoint makes of an element type of PyTorch.
struct TorchType {
  std::optional<DType> dtype = {};  // unset: no checkpoint can hold it
  const ByteType* bytes = nullptr;  // not null: `dtype` is uint8, and the type is kept by its name
  std::string_view why_not = {};    // where dtype is unset: a sentence with the remedy
};

// Empty for types without a class in Python: their tensors lie in an UntypedStorage.
std::string_view storage_class_of(DType dtype);
// Also of the classes that only C++ writes ("Float8_e4m3fnStorage").
std::optional<TorchType> type_of_storage_class(std::string_view name);
// The type of "torch.<name>". Holdfast's names are those of PyTorch, but for a few synonyms ("half").
std::optional<TorchType> type_of_torch(std::string_view name);

}}}  // namespace holdfast::v0_2::internal
