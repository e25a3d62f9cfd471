#include "holdfast/base/json.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

namespace holdfast { inline namespace v0_2 {

namespace {

class Builder {
 public:
  Builder(JsonValue& root, std::size_t deepest) : root_(root), deepest_(deepest) {}

  bool null() { return put({.kind = JsonValue::Kind::null}) != nullptr; }
  bool boolean(bool value) {
    return put({.kind = JsonValue::Kind::boolean, .integer = value ? 1 : 0}) != nullptr;
  }
  bool number_integer(std::int64_t value) { return whole(value); }
  bool number_unsigned(std::uint64_t value) {
    // A number above the largest signed one keeps its size, though not its last digits.
    return std::in_range<std::int64_t>(value) ? whole(static_cast<std::int64_t>(value))
                                              : number(static_cast<double>(value));
  }
  bool number_float(double value, const std::string& /*text*/) { return number(value); }
  bool string(std::string& value) {
    return put({.kind = JsonValue::Kind::text, .text = std::move(value)}) != nullptr;
  }
  // JSON text has no binary values; nlohmann's interface asks for the function.
  bool binary(nlohmann::json::binary_t& /*value*/) { return false; }
  bool start_object(std::size_t /*size*/) { return open(JsonValue::Kind::object); }
  bool start_array(std::size_t /*size*/) { return open(JsonValue::Kind::list); }
  bool key(std::string& name) {
    open_.back()->names.push_back(std::move(name));
    return true;
  }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) { return false; }

 private:
  JsonValue* put(JsonValue value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    // The pointers in open_ stay valid, because only the innermost value grows.
    return &open_.back()->items.emplace_back(std::move(value));
  }
  bool number(double value) { return put({.kind = JsonValue::Kind::number, .number = value}) != nullptr; }
  bool whole(std::int64_t value) {
    return put({.kind = JsonValue::Kind::number,
                .whole = true,
                .number = static_cast<double>(value),
                .integer = value}) != nullptr;
  }
  bool open(JsonValue::Kind kind) {
    // nlohmann's parser has no limit, and the destructor of a deep tree recurses: hostile input must not
    // overflow the stack.
    if (open_.size() == deepest_) return false;
    open_.push_back(put({.kind = kind}));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  JsonValue& root_;
  const std::size_t deepest_;
  std::vector<JsonValue*> open_;
};

}  // namespace

const JsonValue* JsonValue::find(std::string_view name) const {
  // From the end: the last of two members with one name counts, as in most JSON readers.
  for (std::size_t i = std::min(names.size(), items.size()); i-- > 0;) {
    if (names[i] == name) return &items[i];
  }
  return nullptr;
}

JsonValue parse_json(std::string_view text, std::size_t deepest) {
  // nlohmann takes a NUL for the end of the text and would ignore the rest.
  if (text.find('\0') != std::string_view::npos) return {};
  JsonValue root;
  Builder builder(root, deepest);
  if (!nlohmann::json::sax_parse(text, &builder)) return {};
  return root;
}

std::optional<std::string> text_member(const JsonValue& object, std::string_view name) {
  const JsonValue* const found = object.find(name);
  if (found == nullptr || !found->is(JsonValue::Kind::text)) return std::nullopt;
  return found->text;
}

std::optional<std::int64_t> integer_member(const JsonValue& object, std::string_view name) {
  const JsonValue* const found = object.find(name);
  if (found == nullptr || !found->whole) return std::nullopt;
  return found->integer;
}

std::string json_text(const std::string& text) {
  // Replaces malformed UTF-8 instead of throwing: a strange host name must not lose a record.
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}}  // namespace holdfast::v0_2
