// CRC-32 as zip archives use it (polynomial 0xEDB88320, reflected), eight bytes at a time.
//
// Errors: none. Threads: pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace holdfast { inline namespace v0_2 { namespace internal {

// What a wrong checksum in a file of PyTorch means.
inline constexpr std::string_view kBadCrc =
    "the file is damaged, or torch.serialization.set_crc32_options(False) left the checksums out";

// `before`: the checksum of the bytes in front of these; 0 for none.
std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t before = 0);

}}}  // namespace holdfast::v0_2::internal
