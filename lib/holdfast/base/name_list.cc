#include "holdfast/base/name_list.h"

namespace holdfast { inline namespace v0_2 {

std::string name_list(std::span<const std::string> names, std::size_t shown) {
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < shown; ++i) text += (i > 0 ? ", " : "") + names[i];
  if (names.size() > shown) text += " and " + std::to_string(names.size() - shown) + " more";
  return text;
}

}}  // namespace holdfast::v0_2
