#include "holdfast/snapshot/utf8.h"

#include <algorithm>
#include <cstddef>

namespace holdfast::inline v1 {
namespace {

unsigned char byte_at(std::string_view text, std::size_t i) { return static_cast<unsigned char>(text[i]); }

bool is_control(unsigned char byte) { return byte < 0x20 || byte == 0x7f; }

// Bytes of the well-formed character at the start of `text`, 0 when there is none.
std::size_t character_length(std::string_view text) {
  const unsigned char first = byte_at(text, 0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  // Only the second byte's range depends on the first: overlong forms, surrogates, the end of Unicode.
  const unsigned char second = byte_at(text, 1);
  const unsigned char least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned char most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (second < least || second > most) return 0;
  for (std::size_t i = 2; i < length; ++i) {
    if ((byte_at(text, i) & 0xc0) != 0x80) return 0;
  }
  return length;
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = character_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

bool has_control(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return is_control(static_cast<unsigned char>(c)); });
}

std::string printable(std::string_view text, std::size_t limit) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string result;
  while (!text.empty()) {
    if (result.size() >= limit) return result + "…";
    const std::size_t length = character_length(text);
    const unsigned char first = byte_at(text, 0);
    if (length == 0 || is_control(first)) {
      result += "\\x";
      result += kHex[first >> 4];
      result += kHex[first & 15];
      text.remove_prefix(1);
    } else {
      result += text.substr(0, length);
      text.remove_prefix(length);
    }
  }
  return result;
}

}  // namespace holdfast::inline v1
