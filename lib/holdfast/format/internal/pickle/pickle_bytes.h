// Takes a pickle's bytes from front to back: opcodes, and the numbers and texts behind them.
//
// Errors: PickleRefusal, for a pickle that ends too early. Threads: one.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

#include "holdfast/format/internal/pickle/pickle_tensor.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class PickleBytes {
 public:
  explicit PickleBytes(std::string_view pickle) : rest_(pickle) {}

  bool empty() const { return rest_.empty(); }

  std::string_view take(std::size_t size) {
    if (size > rest_.size()) refuse("it ends too early");
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }
  std::uint64_t number(std::size_t size) {
    const std::string_view bytes = take(size);
    std::uint64_t value = 0;
    for (std::size_t i = size; i-- > 0;) value = value << 8U | static_cast<unsigned char>(bytes[i]);
    return value;
  }
  // A number in two's complement behind its size; nullopt if it has more than 64 bits.
  std::optional<std::int64_t> integer() {
    // Zero bytes are allowed, and mean 0.
    const std::size_t size = number(1);
    if (size > sizeof(std::int64_t)) {
      take(size);
      return std::nullopt;
    }
    std::uint64_t value = number(size);
    const std::size_t bits = 8 * size;
    // The highest bit is the sign.
    if (size > 0 && size < sizeof value && (value >> (bits - 1)) != 0) value |= ~std::uint64_t{0} << bits;
    return static_cast<std::int64_t>(value);
  }
  // Big-endian, unlike all other numbers of a pickle.
  double real() {
    std::uint64_t bits = 0;
    for (const char byte : take(8)) bits = bits << 8U | static_cast<unsigned char>(byte);
    return std::bit_cast<double>(bits);
  }
  // Two lines, as "module\nname".
  std::string_view name() {
    const char* const begin = rest_.data();
    const std::size_t module = line().size();
    const std::size_t name = line().size();
    return {begin, module + 1 + name};
  }

 private:
  std::string_view line() {
    const std::size_t end = rest_.find('\n');
    // A name of more than 1024 bytes is not one of PyTorch's, and a search without a limit costs time.
    if (end == std::string_view::npos || end > 1024) refuse("a name has no end");
    const std::string_view text = take(end);
    take(1);
    return text;
  }

  std::string_view rest_;
};

}}}  // namespace holdfast::v0_2::internal
