#include "holdfast/snapshot/tensor_spec.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string_view>
#include <unordered_set>

#include "holdfast/base/error.h"
#include "holdfast/base/utf8.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr std::size_t kMaxName = 1024;
// Offsets of tensors and files are signed 64-bit numbers in LibTorch and in the kernel.
constexpr auto kMaxBytes = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

// nullopt if a dimension is negative, or if the product exceeds 2^63 - 1. An empty tensor's other dimensions
// count.
std::optional<std::uint64_t> elements_of(const std::vector<std::int64_t>& shape, std::uint64_t unit) {
  std::uint64_t product = unit;
  bool empty = false;
  for (const std::int64_t dimension : shape) {
    if (dimension < 0) return std::nullopt;
    // The others still have to be checked: a shape like [0, -1] is wrong as well.
    if (dimension == 0) {
      empty = true;
      continue;
    }
    if (product > kMaxBytes / static_cast<std::uint64_t>(dimension)) return std::nullopt;
    product *= static_cast<std::uint64_t>(dimension);
  }
  return empty ? 0 : product;
}

[[noreturn]] void refuse(std::string_view name, const std::string& what) {
  throw RefusedError("tensor '" + printable(name) + "': " + what);
}

void check_name(std::string_view name) {
  if (name.size() > kMaxName) {
    refuse(name, "the name has " + std::to_string(name.size()) + " bytes, at most 1024 can be stored");
  }
  if (!is_utf8(name)) refuse(name, "the name is not UTF-8");
  if (name.find('\0') != std::string_view::npos) refuse(name, "the name holds a NUL");
  std::size_t components = 0;
  for (std::size_t begin = 0; begin <= name.size(); ++components) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view component = name.substr(begin, end - begin);
    // HDF5 gives "." a meaning of its own, and a foreign tool may use the name as a file path.
    if (component.empty() || component == "." || component == "..") {
      refuse(name, "a component of the name is empty, '.' or '..'");
    }
    begin = end + 1;
  }
  if (components < 2) refuse(name, "the name needs a group and a leaf, as in 'model/fc.weight'");
}

}  // namespace

std::uint64_t TensorSpec::elements() const {
  const auto count = elements_of(shape, 1);
  if (!count) refuse(name, "the shape " + shape_text(shape) + " is negative or too large");
  return *count;
}

std::uint64_t TensorSpec::bytes() const {
  const auto count = elements_of(shape, size_of(dtype));
  if (!count) refuse(name, "the shape " + shape_text(shape) + " is negative or too large");
  return *count;
}

void check_tensor_specs(std::span<const TensorSpec> specs) {
  std::unordered_set<std::string_view> names;
  names.reserve(specs.size());
  // Makes an overflow throw here, before anybody computes an offset with it.
  for (const TensorSpec& spec : specs) {
    check_name(spec.name);
    static_cast<void>(spec.bytes());
    if (!names.insert(spec.name).second) refuse(spec.name, "there are two tensors of this name");
  }
  // HDF5 has one name space for groups and datasets, and so has a path in Python.
  for (const std::string_view name : names) {
    for (std::size_t slash = name.find('/'); slash != std::string_view::npos;
         slash = name.find('/', slash + 1)) {
      if (names.contains(name.substr(0, slash))) {
        refuse(name,
               "'" + printable(name.substr(0, slash)) + "' is a tensor, so it cannot be a group as well");
      }
    }
  }
}

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i != 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

}}  // namespace holdfast::v0_2
