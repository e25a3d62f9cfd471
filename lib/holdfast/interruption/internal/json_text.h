// What the parsers of notice files and of metadata services share. The bytes are a stranger's.
//
// Threads: pure.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace holdfast::inline v1::internal {

using Json = nlohmann::json;

// One JSON value and nothing after it; discarded (is_discarded()) otherwise.
Json parse_json(std::string_view text);
// Nothing where there is no such member, or it is no text.
std::optional<std::string> text_member(const Json& object, const char* name);
// For people: `most` bytes of it at most, then "…"; control characters become blanks. Well-formed UTF-8 stays
// so.
std::string shortened(std::string text, std::size_t most);
// As shortened(), and what is no UTF-8 becomes "?".
std::string shown(std::string_view text, std::size_t most);

}  // namespace holdfast::inline v1::internal
