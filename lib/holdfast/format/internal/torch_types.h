// PyTorch's names of element types: the storage class ("FloatStorage") and the type itself ("float32").
//
// Errors: an empty name, or nullopt. Threads: pure.
#pragma once

#include <optional>
#include <string_view>

#include "holdfast/snapshot/dtype.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// Empty for types without a class of their own: their tensors lie in an UntypedStorage.
std::string_view storage_class_of(DType dtype);
std::optional<DType> dtype_of_storage_class(std::string_view name);
// Of "torch.<name>". Holdfast's names are those of PyTorch, but for a few synonyms ("half").
std::optional<DType> dtype_of_torch(std::string_view name);

}}}  // namespace holdfast::v0_2::internal
