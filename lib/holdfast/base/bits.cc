#include "holdfast/base/bits.h"

#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>

namespace holdfast { inline namespace v0_2 {
namespace {

template <class Unsigned>
void write_hex(Unsigned bits, char* out) {
  // From the last digit on, so that no shift depends on the type's width.
  for (std::size_t i = sizeof(Unsigned) * 2; i-- > 0; bits >>= 4) out[i] = "0123456789abcdef"[bits & 15];
}

// std::to_chars prints "-nan" and "nan(…)" for some bit patterns. One spelling keeps equal columns equal.
template <class Float>
std::size_t write_decimal(Float value, std::span<char> buffer) {
  std::string_view word;
  if (std::isnan(value)) {
    word = "nan";
  } else if (std::isinf(value)) {
    word = value > 0 ? "inf" : "-inf";
  } else {
    // Without a precision, to_chars() writes the shortest text that reads back as exactly these bits.
    const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
    return static_cast<std::size_t>(result.ptr - buffer.data());
  }
  return word.copy(buffer.data(), buffer.size());
}

}  // namespace

// JSON has neither infinity nor NaN, and a decimal number may be rounded by another reader. So a value that
// decides the next step is written as its bits.
std::string bits_hex(double value) {
  std::string text(16, '0');
  write_hex(std::bit_cast<std::uint64_t>(value), text.data());
  return text;
}

std::string bits_hex(float value) {
  std::string text(8, '0');
  write_hex(std::bit_cast<std::uint32_t>(value), text.data());
  return text;
}

std::optional<double> double_from_bits_hex(std::string_view hex) {
  std::uint64_t bits = 0;
  // Exactly sixteen digits: from_chars() would read a shortened text as another value.
  if (hex.size() != sizeof(bits) * 2) return std::nullopt;
  const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), bits, 16);
  // from_chars() stops at the first strange letter without an error, so compare where it stopped.
  if (error != std::errc{} || end != hex.data() + hex.size()) return std::nullopt;
  return std::bit_cast<double>(bits);
}

std::string shortest_decimal(double value) {
  // The longest double, such as -2.2250738585072014e-308, has 24 letters.
  std::array<char, 32> buffer{};
  return {buffer.data(), write_decimal(value, buffer)};
}

std::string shortest_decimal(float value) {
  std::array<char, 32> buffer{};
  return {buffer.data(), write_decimal(value, buffer)};
}

std::size_t write_shortest_decimal(double value, std::span<char> buffer) {
  return write_decimal(value, buffer);
}

void write_bits_hex(double value, std::span<char> buffer) {
  write_hex(std::bit_cast<std::uint64_t>(value), buffer.data());
}

}}  // namespace holdfast::v0_2
