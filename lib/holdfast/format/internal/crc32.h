// CRC-32 as zip archives use it (polynomial 0xEDB88320, reflected), eight bytes at a time.
//
// Errors: none. Threads: pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace holdfast { inline namespace v1 { namespace internal {

// `before`: the checksum of the bytes in front of these; 0 for none.
std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t before = 0);

}}}  // namespace holdfast::v1::internal
