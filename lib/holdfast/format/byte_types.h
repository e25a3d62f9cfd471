// Element types that Holdfast knows by name alone, because nothing here computes with them: scales of MXFP8
// and MXFP4, AMD's fp8, packed 4-bit floats. A checkpoint holds such a tensor as uint8, and the attribute
// "<module>.dtype.<key>" names its type (docs/file_format.md). Exports give the type back.
//
// Errors: none. Threads: pure.
#pragma once

#include <string>
#include <string_view>

#include "holdfast/snapshot/snapshot.h"

namespace holdfast { inline namespace v0_2 {

struct ByteType {
  std::string_view name;         // PyTorch's: "float8_e8m0fnu"
  std::string_view safetensors;  // "F8_E8M0"; empty: that format has none
  std::string_view storage;      // class of C++'s storages: "Float8_e8m0fnuStorage"
  std::int64_t in_a_byte = 1;    // elements, as safetensors counts them. PyTorch counts bytes
};

// nullptr: no such type.
const ByteType* byte_type_named(std::string_view name);
const ByteType* byte_type_of_safetensors(std::string_view name);
const ByteType* byte_type_of_storage(std::string_view storage_class);

std::string byte_type_attribute(std::string_view module, std::string_view key);
// The type of a tensor "<module>/<key>" that is stored as bytes; nullptr for all others.
const ByteType* byte_type_of(const Attributes& attributes, const TensorSpec& tensor);

}}  // namespace holdfast::v0_2
