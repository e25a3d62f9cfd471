#include "holdfast/base/random_bytes.h"

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
  for (const char byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    text += {kDigits[value >> 4], kDigits[value & 15]};
  }
  return text;
}

}}  // namespace holdfast::v0_2
