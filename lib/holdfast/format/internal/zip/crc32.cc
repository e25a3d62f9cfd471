#include "holdfast/format/internal/zip/crc32.h"

#include <array>

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

constexpr std::size_t kStride = 8;
using Tables = std::array<std::array<std::uint32_t, 256>, kStride>;

constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t value = byte;
    // The reflected polynomial of zip and Ethernet (IEEE 802.3).
    for (int bit = 0; bit < 8; ++bit) value = (value & 1U) != 0 ? value >> 1U ^ 0xEDB88320U : value >> 1U;
    tables[0][byte] = value;
  }
  for (std::size_t byte = 0; byte < 256; ++byte) {
    for (std::size_t i = 1; i < kStride; ++i) {
      const std::uint32_t value = tables[i - 1][byte];
      tables[i][byte] = value >> 8U ^ tables[0][value & 0xFFU];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

}  // namespace

std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t before) {
  const auto at = [&](std::size_t i) { return std::to_integer<std::uint32_t>(bytes[i]); };
  std::uint32_t crc = ~before;
  // Eight bytes at a time ("slicing by 8"), which is several times faster than one.
  for (; bytes.size() >= kStride; bytes = bytes.subspan(kStride)) {
    const std::uint32_t low = crc ^ (at(0) | at(1) << 8U | at(2) << 16U | at(3) << 24U);
    crc = kTables[7][low & 0xFFU] ^ kTables[6][low >> 8U & 0xFFU] ^ kTables[5][low >> 16U & 0xFFU] ^
          kTables[4][low >> 24U] ^ kTables[3][at(4)] ^ kTables[2][at(5)] ^ kTables[1][at(6)] ^
          kTables[0][at(7)];
  }
  for (std::size_t i = 0; i < bytes.size(); ++i) crc = crc >> 8U ^ kTables[0][(crc ^ at(i)) & 0xFFU];
  return ~crc;
}

}}}  // namespace holdfast::v0_2::internal
