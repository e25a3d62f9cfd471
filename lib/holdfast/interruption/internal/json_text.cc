#include "holdfast/interruption/internal/json_text.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

namespace holdfast::inline v1::internal {

namespace {

class Builder {
 public:
  explicit Builder(Json& root) : root_(root) {}

  bool null() { return put({.kind = Json::Kind::null}) != nullptr; }
  bool boolean(bool /*value*/) { return put({.kind = Json::Kind::boolean}) != nullptr; }
  bool number_integer(std::int64_t value) { return number(static_cast<double>(value)); }
  bool number_unsigned(std::uint64_t value) { return number(static_cast<double>(value)); }
  bool number_float(double value, const std::string& /*text*/) { return number(value); }
  bool string(std::string& value) {
    return put({.kind = Json::Kind::text, .text = std::move(value)}) != nullptr;
  }
  bool binary(nlohmann::json::binary_t& /*value*/) { return false; }
  bool start_object(std::size_t /*size*/) { return open(Json::Kind::object); }
  bool start_array(std::size_t /*size*/) { return open(Json::Kind::list); }
  bool key(std::string& name) {
    open_.back()->names.push_back(std::move(name));
    return true;
  }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) { return false; }

 private:
  static constexpr std::size_t kDeepest = 64;

  Json* put(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    // The others that are open stay where they are: only the innermost grows.
    return &open_.back()->items.emplace_back(std::move(value));
  }
  bool number(double value) { return put({.kind = Json::Kind::number, .number = value}) != nullptr; }
  bool open(Json::Kind kind) {
    if (open_.size() == kDeepest) return false;
    open_.push_back(put({.kind = kind}));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  Json& root_;
  std::vector<Json*> open_;
};

}  // namespace

const Json* Json::find(std::string_view name) const {
  for (std::size_t i = std::min(names.size(), items.size()); i-- > 0;) {
    if (names[i] == name) return &items[i];
  }
  return nullptr;
}

Json parse_json(std::string_view text) {
  // nlohmann takes a NUL for the end of the text.
  if (text.find('\0') != std::string_view::npos) return {};
  Json root;
  Builder builder(root);
  if (!nlohmann::json::sax_parse(text, &builder)) return {};
  return root;
}

std::optional<std::string> text_member(const Json& object, std::string_view name) {
  const Json* const found = object.find(name);
  if (found == nullptr || !found->is(Json::Kind::text)) return std::nullopt;
  return found->text;
}

std::string json_text(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

std::string shortened(std::string text, std::size_t most) {
  if (text.size() > most) {
    while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xc0) == 0x80) --most;
    text.resize(most);
    text += "…";
  }
  std::replace_if(
      text.begin(), text.end(), [](char c) { return (c >= 0 && c < 0x20) || c == 0x7f; }, ' ');
  return text;
}

std::string shown(std::string_view text, std::size_t most) {
  std::string clean(text.substr(0, most + 1));
  std::replace_if(
      clean.begin(), clean.end(), [](char c) { return c < 0; }, '?');
  return shortened(std::move(clean), most);
}

}  // namespace holdfast::inline v1::internal
