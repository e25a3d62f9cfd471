// What the parsers of notice files and of metadata services share. The bytes are a stranger's.
//
// Threads: pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::inline v1::internal {

// A value, and all that it holds. Not nlohmann's document: that allocates in its destructor, and would end
// the process where there is no memory.
struct Json {
  enum class Kind { none, null, boolean, number, text, list, object };
  Kind kind = Kind::none;
  double number = 0;
  std::string text = {};
  std::vector<std::string> names = {};  // of an object's items
  std::vector<Json> items = {};         // of a list or an object

  bool is(Kind wanted) const { return kind == wanted; }
  // Of an object; of several of one name the last. Null where there is none.
  const Json* find(std::string_view name) const;
};

// One JSON value and nothing after it; of Kind::none otherwise, and where lists and objects lie more than 64
// deep in each other.
Json parse_json(std::string_view text);
// Nothing where there is no such member, or it is no text.
std::optional<std::string> text_member(const Json& object, std::string_view name);
// A text as JSON writes it, in ASCII; what is no UTF-8 is replaced.
std::string json_text(const std::string& text);
// For people: `most` bytes of it at most, then "…"; control characters become blanks. Well-formed UTF-8 stays
// so.
std::string shortened(std::string text, std::size_t most);
// As shortened(), and what is no UTF-8 becomes "?".
std::string shown(std::string_view text, std::size_t most);

}  // namespace holdfast::inline v1::internal
