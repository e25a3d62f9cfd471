#include "holdfast/interruption/internal/shown_text.h"

#include <algorithm>
#include <utility>

namespace holdfast { inline namespace v0_2 { namespace internal {

std::string shortened(std::string text, std::size_t most) {
  if (text.size() > most) {
    // A byte 10xxxxxx continues a character, so the cut moves back to before the character that it would
    // split.
    while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xc0) == 0x80) --most;
    text.resize(most);
    text += "…";
  }
  // A line end or an escape of foreign text must not begin a line of the log, or steer a terminal.
  std::replace_if(
      text.begin(), text.end(), [](char c) { return (c >= 0 && c < 0x20) || c == 0x7f; }, ' ');
  return text;
}

std::string shown(std::string_view text, std::size_t most) {
  // One byte more than allowed, so that shortened() sees that there was more.
  std::string clean(text.substr(0, most + 1));
  std::replace_if(
      clean.begin(), clean.end(), [](char c) { return c < 0; }, '?');
  return shortened(std::move(clean), most);
}

}}}  // namespace holdfast::v0_2::internal
