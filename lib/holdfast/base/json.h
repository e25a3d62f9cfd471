// Reads one JSON value that somebody else may have written: a notice file, an answer of a metadata service, a
// run state, a claim, a ledger line. Checkpoints have strict parsers of their own (format/).
//
//   const JsonValue line = parse_json(R"({"event":"commit","step":1200})");
//   const std::optional<std::int64_t> step = integer_member(line, "step");
//
// Errors: text that is not JSON gives Kind::none. Throws std::bad_alloc alone. Threads: plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast { inline namespace v0_2 {

// A value and everything inside it. Not nlohmann's document: that one's destructor allocates, and ends the
// process when there is no memory.
struct JsonValue {
  enum class Kind : std::uint8_t { none, null, boolean, number, text, list, object };
  Kind kind = Kind::none;
  bool whole = false;  // a number without fraction and exponent that an int64 holds
  double number = 0;
  std::int64_t integer = 0;  // of a whole number; of a boolean 0 or 1
  std::string text = {};
  std::vector<std::string> names = {};  // of an object's items
  std::vector<JsonValue> items = {};    // of a list or an object

  bool is(Kind wanted) const { return kind == wanted; }
  // A member of an object; the last one if several have that name. Null if there is none.
  const JsonValue* find(std::string_view name) const;
};

// One JSON value and nothing after it. Kind::none otherwise, and where more than `deepest` lists and objects
// enclose a value.
JsonValue parse_json(std::string_view text, std::size_t deepest = 64);

// nullopt if there is no such member, or it has another type.
std::optional<std::string> text_member(const JsonValue& object, std::string_view name);
std::optional<std::int64_t> integer_member(const JsonValue& object, std::string_view name);

// A string as JSON writes it, with its quotes. Malformed UTF-8 becomes U+FFFD.
std::string json_text(const std::string& text);

}}  // namespace holdfast::v0_2
