#include "holdfast/base/utf8.h"

#include <algorithm>

namespace holdfast { inline namespace v0_2 {
namespace {

unsigned char byte_at(std::string_view text, std::size_t i) { return static_cast<unsigned char>(text[i]); }

bool is_control(unsigned char byte) { return byte < 0x20 || byte == 0x7f; }

// U+0080 to U+009F are C1 controls; U+009B begins an escape sequence as ESC [ does. The other characters are
// marks of bidirectional text, which make one name look like another.
bool steers(std::string_view character) {
  if (character.size() == 1) return is_control(byte_at(character, 0));
  const unsigned first = byte_at(character, 0);
  const unsigned second = byte_at(character, 1);
  // d8 9c is U+061C, the Arabic letter mark.
  if (character.size() == 2) return (first == 0xc2 && second < 0xa0) || (first == 0xd8 && second == 0x9c);
  if (character.size() != 3 || first != 0xe2) return false;
  const unsigned third = byte_at(character, 2);
  // U+200E, U+200F and U+202A to U+202E; below, U+2066 to U+2069.
  if (second == 0x80) return third == 0x8e || third == 0x8f || (third >= 0xaa && third <= 0xae);
  return second == 0x81 && third >= 0xa6 && third <= 0xa9;
}

// Moves the first character of `text` to the end of `result`, in a form that is safe to show.
void take_character(std::string_view& text, std::string& result) {
  static constexpr char kHex[] = "0123456789abcdef";
  // A malformed byte is taken alone, so that the next character is still read correctly.
  const std::size_t length = std::max<std::size_t>(character_length(text), 1);
  const std::string_view character = text.substr(0, length);
  text.remove_prefix(length);
  if (is_utf8(character) && !steers(character)) {
    result += character;
    return;
  }
  for (const char c : character) {
    const auto byte = static_cast<unsigned char>(c);
    result += "\\x";
    result += kHex[byte >> 4];
    result += kHex[byte & 15];
  }
}

}  // namespace

std::size_t character_length(std::string_view text) {
  const unsigned char first = byte_at(text, 0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  // 0xc0 and 0xc1 would be overlong forms of ASCII; above 0xf4 a character would lie outside of Unicode.
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
  std::string result;
  while (!text.empty()) {
    // Checked before a character, so that the limit never cuts one into pieces.
    if (result.size() >= limit) return result + "…";
    take_character(text, result);
  }
  return result;
}

std::string terminal_text(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const char first = text.front();
    if (first == '\n' || first == '\t') {
      result += first;
      text.remove_prefix(1);
    } else {
      take_character(text, result);
    }
  }
  return result;
}

std::string_view cut_text(std::string_view text, std::size_t most) {
  if (text.size() <= most) return text;
  // Back to the first byte of the character that does not fit.
  while (most > 0 && (byte_at(text, most) & 0xc0) == 0x80) --most;
  return text.substr(0, most);
}

}}  // namespace holdfast::v0_2
