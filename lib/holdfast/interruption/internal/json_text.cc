#include "holdfast/interruption/internal/json_text.h"

#include <algorithm>
#include <utility>

namespace holdfast::inline v1::internal {

Json parse_json(std::string_view text) {
  // nlohmann takes a NUL for the end of the text.
  if (text.find('\0') != std::string_view::npos) return {Json::value_t::discarded};
  return Json::parse(text, nullptr, false);
}

std::optional<std::string> text_member(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_string()) return std::nullopt;
  return found->get<std::string>();
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
