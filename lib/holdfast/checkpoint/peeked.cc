#include "holdfast/checkpoint/peeked.h"

#include <algorithm>

namespace holdfast { inline namespace v0_2 {

const TensorSpec* Peeked::tensor(std::string_view name) const {
  const auto found =
      std::find_if(tensors.begin(), tensors.end(), [&](const TensorSpec& spec) { return spec.name == name; });
  return found == tensors.end() ? nullptr : &*found;
}

bool Peeked::has_part(std::string_view name) const {
  if (!attributes.has("state.parts")) return false;
  const auto& parts = attributes.get_strings("state.parts");  // "module model"
  return std::any_of(parts.begin(), parts.end(),
                     [&](const std::string& part) { return part.substr(part.find(' ') + 1) == name; });
}

std::int64_t Peeked::groups(const std::string& optimizer) const {
  std::int64_t count = 0;
  while (attributes.has(optimizer + ".group." + std::to_string(count) + ".parameters")) ++count;
  return count;
}

}}  // namespace holdfast::v0_2
