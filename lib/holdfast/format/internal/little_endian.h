// Integers in the file's byte order on any machine.
//
// Requires space for the integer at the offset. Errors: none. Threads: pure.
#pragma once

#include <cstddef>
#include <span>

namespace holdfast { inline namespace v0_2 { namespace internal {

template <class Integer>
void put_little_endian(std::span<std::byte> bytes, std::size_t at, Integer value) {
  for (std::size_t i = 0; i < sizeof(Integer); ++i) bytes[at + i] = static_cast<std::byte>(value >> (8 * i));
}

template <class Integer>
Integer get_little_endian(std::span<const std::byte> bytes, std::size_t at) {
  Integer value = 0;
  for (std::size_t i = 0; i < sizeof(Integer); ++i) {
    value |= static_cast<Integer>(static_cast<Integer>(bytes[at + i]) << (8 * i));
  }
  return value;
}

}}}  // namespace holdfast::v0_2::internal
