#include "holdfast/snapshot/digested_tensors.h"

#include <charconv>
#include <optional>
#include <span>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/utf8.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr std::string_view kDigestOf = ".digest.";

// "[64, 3, 7, 7]"; nullopt if it is none.
std::optional<std::vector<std::int64_t>> shape_from(std::string_view text) {
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') return std::nullopt;
  std::vector<std::int64_t> shape;
  const char* at = text.data() + 1;
  const char* const end = text.data() + text.size() - 1;
  while (at != end) {
    std::int64_t size = 0;
    const auto [behind, error] = std::from_chars(at, end, size);
    if (error != std::errc()) return std::nullopt;
    shape.push_back(size);
    at = behind;
    if (at == end) break;
    if (!std::string_view(at, end).starts_with(", ") || end - at == 2) return std::nullopt;
    at += 2;
  }
  return shape;
}

std::optional<DigestedTensor> digested_from(std::string name, const AttributeValue& value) {
  const auto* const text = std::get_if<std::string>(&value);
  if (text == nullptr) return std::nullopt;
  const std::size_t type = text->find(' ');
  const std::size_t shape = text->rfind(' ');
  if (type == std::string::npos || shape == type) return std::nullopt;
  const std::string_view all = *text;
  const auto dtype = dtype_named(all.substr(0, type));
  auto sizes = shape_from(all.substr(type + 1, shape - type - 1));
  const auto digest = digest_from_hex(all.substr(shape + 1));
  if (!dtype || !sizes || !digest) return std::nullopt;
  DigestedTensor tensor{{std::move(name), *dtype, std::move(*sizes)}, *digest};
  check_tensor_specs(std::span(&tensor.spec, 1));
  return tensor;
}

}  // namespace

std::string digest_attribute(const std::string& tensor) {
  const std::size_t slash = tensor.find('/');
  return tensor.substr(0, slash) + std::string(kDigestOf) + tensor.substr(slash + 1);
}

void put_digested(const DigestedTensor& tensor, Attributes& out) {
  const TensorSpec& spec = tensor.spec;
  out.set(digest_attribute(spec.name),
          std::string(name_of(spec.dtype)) + " " + shape_text(spec.shape) + " " + to_hex(tensor.digest));
}

std::vector<DigestedTensor> digested_tensors(const Attributes& recorded) {
  std::vector<DigestedTensor> tensors;
  // Foreign weights have no parts.
  const Attribute* const parts = recorded.find("state.parts");
  const auto* const names = parts ? std::get_if<std::vector<std::string>>(&parts->value) : nullptr;
  if (names == nullptr) return tensors;
  constexpr std::string_view kModule = "module ";
  for (const std::string& part : *names) {
    if (!part.starts_with(kModule)) continue;
    const std::string module = part.substr(kModule.size());
    const std::string prefix = module + std::string(kDigestOf);
    for (const auto& [name, attribute] : recorded.with_prefix(prefix)) {
      auto tensor = digested_from(module + "/" + name.substr(prefix.size()), attribute.value);
      if (!tensor) {
        throw RefusedError("the attribute '" + printable(name) +
                           "' is no digest of a tensor: it was written by another program");
      }
      tensors.push_back(std::move(*tensor));
    }
  }
  return tensors;
}

bool names_digest(std::string_view attribute, std::string_view module) {
  return attribute.starts_with(module) && attribute.substr(module.size()).starts_with(kDigestOf);
}

}}  // namespace holdfast::v0_2
