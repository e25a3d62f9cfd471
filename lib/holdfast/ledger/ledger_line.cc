#include "holdfast/ledger/ledger_line.h"

#include <charconv>

#include "holdfast/base/utf8.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// An int64 takes at most 20 characters; with the three decimals of milliseconds, 24.
constexpr std::size_t kLongestNumber = 24;

// Length of the character at the start of `text`; 0 if it is cut or malformed.
std::size_t character(std::string_view text) {
  const auto first = static_cast<unsigned char>(text.front());
  // As in UTF-8: the first byte tells the length, and is_utf8() checks the rest.
  const std::size_t bytes = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  return bytes <= text.size() && is_utf8(text.substr(0, bytes)) ? bytes : 0;
}

}  // namespace

LedgerLine::LedgerLine(std::string_view event) noexcept {
  put("{");
  text("event", event);
}

void LedgerLine::put(std::string_view bytes) noexcept {
  // Without a check of its own: open() and text() have made sure that it fits.
  used_ += bytes.copy(buffer_.data() + used_, bytes.size());
}

// Makes sure that `,"name":`, `value_bytes` and the closing brace fit; otherwise the member is left out.
bool LedgerLine::open(std::string_view name, std::size_t value_bytes) noexcept {
  // 4 for two quotes, the colon and the comma; 1 for the closing brace.
  if (closed_ || used_ + name.size() + 4 + value_bytes + 1 > kLongest) return false;
  put(used_ == 1 ? "\"" : ",\"");
  put(name);
  put("\":");
  return true;
}

LedgerLine& LedgerLine::text(std::string_view name, std::string_view value) noexcept {
  constexpr char kDigits[] = "0123456789abcdef";
  if (!open(name, 2)) return *this;
  put("\"");
  while (!value.empty()) {
    const std::size_t bytes = character(value);
    const auto first = static_cast<unsigned char>(value.front());
    std::array<char, 6> control{'\\', 'u', '0', '0', kDigits[first >> 4], kDigits[first & 15]};
    std::string_view shown = value.substr(0, bytes);
    if (bytes == 0) {
      shown = "?";
    } else if (first == '"') {
      shown = "\\\"";
    } else if (first == '\\') {
      shown = "\\\\";
    } else if (first < 0x20 || first == 0x7f) {
      shown = {control.data(), control.size()};
    }
    // The text ends early instead of the line: a reader needs the closing quote.
    if (used_ + shown.size() + 2 > kLongest) break;
    put(shown);
    value.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  put("\"");
  return *this;
}

LedgerLine& LedgerLine::number(std::string_view name, std::int64_t value) noexcept {
  if (!open(name, kLongestNumber)) return *this;
  char* const at = buffer_.data() + used_;
  used_ = static_cast<std::size_t>(std::to_chars(at, at + kLongestNumber, value).ptr - buffer_.data());
  return *this;
}

LedgerLine& LedgerLine::number(std::string_view name, std::uint64_t value) noexcept {
  if (!open(name, kLongestNumber)) return *this;
  char* const at = buffer_.data() + used_;
  used_ = static_cast<std::size_t>(std::to_chars(at, at + kLongestNumber, value).ptr - buffer_.data());
  return *this;
}

LedgerLine& LedgerLine::flag(std::string_view name, bool value) noexcept {
  if (open(name, 5)) put(value ? "true" : "false");
  return *this;
}

LedgerLine& LedgerLine::milliseconds(std::string_view name, Duration value) noexcept {
  if (!open(name, kLongestNumber)) return *this;
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(value).count();
  // From zero by unsigned subtraction, because the smallest integer has no positive counterpart.
  const std::uint64_t size =
      micros < 0 ? 0 - static_cast<std::uint64_t>(micros) : static_cast<std::uint64_t>(micros);
  if (micros < 0) put("-");
  char* const at = buffer_.data() + used_;
  used_ = static_cast<std::size_t>(std::to_chars(at, at + kLongestNumber, size / 1000).ptr - buffer_.data());
  const std::uint64_t rest = size % 1000;
  const std::array<char, 4> digits{'.', static_cast<char>('0' + rest / 100),
                                   static_cast<char>('0' + rest / 10 % 10),
                                   static_cast<char>('0' + rest % 10)};
  put({digits.data(), digits.size()});
  return *this;
}

std::string_view LedgerLine::done() noexcept {
  // Once: done() may be called again for the same line.
  if (!closed_) put("}");
  closed_ = true;
  return {buffer_.data(), used_};
}

}}  // namespace holdfast::v0_2
