#include "holdfast/interruption/internal/shown_text.h"

#include <algorithm>
#include <utility>

namespace holdfast { inline namespace v0_2 { namespace internal {

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

}}}  // namespace holdfast::v0_2::internal
