#include "holdfast/base/system/random_bytes.h"

#include <sys/random.h>

#include <cerrno>

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 {

std::string random_bytes(std::size_t count) {
  std::string bytes(count, '\0');
  // The kernel returns up to 256 bytes whole, even when a signal arrives; callers ask for less. Without
  // GRND_NONBLOCK the call waits early in a machine's boot until the kernel has entropy: nobody may guess a
  // secret.
  if (getrandom(bytes.data(), count, 0) != static_cast<ssize_t>(count)) throw IoError("getrandom", "", errno);
  return bytes;
}

std::string in_hex(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const char byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    text += {kDigits[value >> 4], kDigits[value & 15]};
  }
  return text;
}

bool from_hex(std::string_view hex, std::span<std::byte> bytes) {
  // Capital letters are refused: bytes have one spelling, so texts of digests can be compared.
  const auto digit = [&](std::size_t at) {
    const char c = hex[at];
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  };
  if (hex.size() != 2 * bytes.size()) return false;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const int high = digit(2 * i);
    const int low = digit(2 * i + 1);
    if (high < 0 || low < 0) return false;
    bytes[i] = static_cast<std::byte>(high << 4 | low);
  }
  return true;
}

}}  // namespace holdfast::v0_2
