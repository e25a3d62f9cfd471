#include "holdfast/format/byte_types.h"

#include <algorithm>
#include <array>

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr std::array<ByteType, 8> kByteTypes{{{"float8_e8m0fnu", "F8_E8M0", "Float8_e8m0fnuStorage"},
                                              {"float8_e4m3fnuz", "F8_E4M3FNUZ", "Float8_e4m3fnuzStorage"},
                                              {"float8_e5m2fnuz", "F8_E5M2FNUZ", "Float8_e5m2fnuzStorage"},
                                              {"float4_e2m1fn_x2", "F4", "Float4_e2m1fn_x2Storage", 2},
                                              {"bits8", "", "Bits8Storage"},
                                              {"bits1x8", "", "Bits1x8Storage"},
                                              {"bits2x4", "", "Bits2x4Storage"},
                                              {"bits4x2", "", "Bits4x2Storage"}}};

const ByteType* type_with(std::string_view ByteType::*member, std::string_view value) {
  const auto* const found = std::find_if(kByteTypes.begin(), kByteTypes.end(),
                                         [&](const ByteType& type) { return type.*member == value; });
  return value.empty() || found == kByteTypes.end() ? nullptr : found;
}

}  // namespace

const ByteType* byte_type_named(std::string_view name) { return type_with(&ByteType::name, name); }
const ByteType* byte_type_of_safetensors(std::string_view name) {
  return type_with(&ByteType::safetensors, name);
}
const ByteType* byte_type_of_storage(std::string_view storage_class) {
  return type_with(&ByteType::storage, storage_class);
}

std::string byte_type_attribute(std::string_view module, std::string_view key) {
  return std::string(module) + ".dtype." + std::string(key);
}

const ByteType* byte_type_of(const Attributes& attributes, const TensorSpec& tensor) {
  const std::size_t slash = tensor.name.find('/');
  if (tensor.dtype != DType::uint8 || slash == std::string::npos) return nullptr;
  const std::string_view name = tensor.name;
  const Attribute* const found =
      attributes.find(byte_type_attribute(name.substr(0, slash), name.substr(slash + 1)));
  const auto* const type = found != nullptr ? std::get_if<std::string>(&found->value) : nullptr;
  return type != nullptr ? byte_type_named(*type) : nullptr;
}

}}  // namespace holdfast::v0_2
